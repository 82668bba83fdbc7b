package harness

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// StoppedBwrap is a bubblewrap for AGENTFENSE_RUNTIME_BWRAP_PATH that stops itself
// before it begins, so that Follow finds it at its first instruction.
const StoppedBwrap = "#!/bin/sh\nkill -STOP $$\nPATH=/usr/local/bin:/usr/bin:/bin exec bwrap \"$@\"\n"

// A Moment is a point of bubblewrap's start at which Follow holds it.
type Moment string

// The moments. From the first to the last bubblewrap's child waits for its parent
// in a way that the parent's death does not end.
const (
	WhenBorn    Moment = "when its child is born"
	WhenBinding Moment = "when it has bound its life to the supervisor's"
)

// Follow lets a process that plays StoppedBwrap go on until the moment, calls do
// with the pids of it and of its child, which stand still, and lets both go.
func Follow(pid int, moment Moment, do func(bwrap, child int)) error {
	runtime.LockOSThread() // who traces is a thread
	defer runtime.UnlockOSThread()
	f := &follower{pid: pid}
	if err := f.seize(); err != nil {
		return err
	}
	for f.child == 0 || moment == WhenBinding && !lets(pid) {
		if err := f.step(); err != nil {
			return err
		}
	}
	do(pid, f.child)
	for _, p := range []int{f.child, pid} {
		err := unix.PtraceDetach(p)
		if errors.Is(err, unix.ESRCH) { // it was killed, which its parent hears of after us
			_, err = unix.Wait4(p, &f.status, unix.WALL, nil)
		}
		if err != nil {
			return fmt.Errorf("detach: %w", err)
		}
	}
	return nil
}

// follower traces bubblewrap.
type follower struct {
	pid, child int // the child is 0 until it is born
	status     unix.WaitStatus
}

// seize takes hold of the process that has stopped itself, and lets it continue.
func (f *follower) seize() error {
	if err := unix.PtraceSeize(f.pid); err != nil {
		return fmt.Errorf("seize: %w", err)
	}
	if _, err := unix.Wait4(f.pid, &f.status, unix.WALL, nil); err != nil {
		return fmt.Errorf("wait: %w", err)
	}
	if err := unix.PtraceSetOptions(f.pid, unix.PTRACE_O_TRACEFORK); err != nil {
		return fmt.Errorf("options: %w", err)
	}
	return unix.Kill(f.pid, unix.SIGCONT)
}

// step goes on to the next stop: by system calls, once there is a child.
func (f *follower) step() error {
	resume := unix.PtraceCont
	if f.child != 0 {
		resume = unix.PtraceSyscall
	}
	sig := 0
	if f.status.Stopped() && f.status.TrapCause() <= 0 && f.status.StopSignal() != unix.SIGTRAP {
		sig = int(f.status.StopSignal())
	}
	if err := resume(f.pid, sig); err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	if _, err := unix.Wait4(f.pid, &f.status, unix.WALL, nil); err != nil {
		return fmt.Errorf("wait: %w", err)
	}
	if !f.status.Stopped() {
		return fmt.Errorf("bwrap ended early: %#x", f.status)
	}
	if f.status.TrapCause() != unix.PTRACE_EVENT_FORK {
		return nil
	}
	born, err := unix.PtraceGetEventMsg(f.pid)
	if err != nil {
		return fmt.Errorf("child: %w", err)
	}
	f.child = int(born)
	_, err = unix.Wait4(f.child, &f.status, unix.WALL, nil)
	f.status = 0
	return err
}

// lets reports whether a process is about to write to an eventfd.
func lets(pid int) bool {
	dir := "/proc/" + strconv.Itoa(pid)
	call, _ := os.ReadFile(dir + "/syscall") // gone: it is not
	fields := strings.Fields(string(call))
	if len(fields) < 2 || fields[0] != strconv.Itoa(unix.SYS_WRITE) {
		return false
	}
	fd, err := strconv.ParseUint(strings.TrimPrefix(fields[1], "0x"), 16, 32)
	if err != nil {
		return false
	}
	to, _ := os.Readlink(fmt.Sprintf("%s/fd/%d", dir, fd))
	return to == "anon_inode:[eventfd]"
}
