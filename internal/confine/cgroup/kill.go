package cgroup

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// killTimeout is how long Kill waits. A process in an uninterruptible system call dies only
// after the call.
const killTimeout = 5 * time.Second

// Kill kills all processes of the group and its subs, including those that are forked
// meanwhile, and returns when no process is left. Errors: Unavailable if a process is stuck
// in the kernel for more than five seconds.
func (g *Group) Kill() error {
	places, best := g.dirs(), -1
	for i, p := range places {
		// Since kernel 5.14: one write(2), which no fork escapes.
		if exists(p.dir, "cgroup.kill") {
			best = i
			break
		}
		if best < 0 || exists(p.dir, "freezer.state") {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	return g.kernel.killAll(places[best].dir)
}

// killAll kills the processes in dir and below.
func (k kernel) killAll(dir string) error {
	deadline := time.Now().Add(killTimeout)
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		pids, err := allProcesses(dir)
		if err != nil || len(pids) == 0 {
			return failed(dir, "read cgroup.procs", err)
		}
		if time.Now().After(deadline) {
			return errdefs.New(errdefs.Unavailable, "cgroup %s: kill: %d processes are stuck in the kernel", groupName(dir), len(pids))
		}
		if err := k.killOnce(dir); err != nil {
			return err
		}
		time.Sleep(pause)
	}
}

func (k kernel) killOnce(dir string) error {
	err := write(dir, "cgroup.kill", "1")
	if !errors.Is(err, os.ErrNotExist) {
		return failed(dir, "write cgroup.kill", err)
	}
	// Frozen processes can neither fork nor end, so no pid is reused between the read and
	// the kill.
	thaw := k.freeze(dir)
	defer thaw()
	pids, err := allProcesses(dir)
	if err != nil {
		return failed(dir, "read cgroup.procs", err)
	}
	for _, pid := range pids {
		if pid <= 0 {
			continue
		}
		if err := k.kill(pid); err != nil && !errors.Is(err, unix.ESRCH) {
			return failed(dir, "kill", err)
		}
	}
	return nil
}

// freeze stops the processes in dir if possible. It returns the function that thaws them:
// v1 delivers SIGKILL only after that.
func (k kernel) freeze(dir string) func() {
	file, on, off := "freezer.state", "FROZEN", "THAWED"
	if !exists(dir, file) {
		file, on, off = "cgroup.freeze", "1", "0"
	}
	if write(dir, file, on) != nil {
		return func() {}
	}
	for range 20 {
		if state, _ := read(dir, file); state == on {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return func() { _ = write(dir, file, off) }
}

// allProcesses lists the processes in dir and below; none if dir is gone.
func allProcesses(dir string) ([]int, error) {
	pids, err := processes(dir)
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	below, err := subgroups(dir)
	if err != nil && !gone(err) {
		return nil, err
	}
	for _, sub := range below {
		more, err := allProcesses(sub)
		if err != nil {
			return nil, err
		}
		pids = append(pids, more...)
	}
	return pids, nil
}

// gone reports whether err means that the group was removed. Its open files return ENODEV.
func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV)
}
