package guest

import (
	"cmp"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// leases is the leader's side of passing pipes to a process that already runs, a session's
// shell. A descriptor cannot be put into that process, but it can open /proc/PID/fd/N of a
// holder: a stopped process that has the pipes as its three streams. (It cannot open the
// leader's own descriptors, because the leader is not dumpable.)
type leases struct {
	program string // the shell, which the holder also runs

	mu      sync.Mutex
	holder  int  // pid, or 0
	started stat // of the holder; older processes do not belong to the lease
	since   int  // pid of the last holder
	dead    chan struct{}
	proc    procReader
}

// leaseGC is the GC percentage of a leader with leases (see leaderEnv): it lives long, and
// each lease leaves some garbage.
const leaseGC = 10

// holderScript makes a shell wait for its SIGKILL.
const holderScript = "kill -STOP $$"

// grant starts a holder of three pipes and returns its pid and start time. There is one
// holder at a time.
func (l *leases) grant(fds []int) (int, uint32, error) {
	if len(fds) != 3 {
		return 0, 0, unix.EINVAL
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder != 0 {
		return 0, 0, unix.EBUSY
	}
	if l.since == 0 {
		debug.SetGCPercent(leaseGC)
	}
	pid, err := syscall.ForkExec(l.program, []string{l.program, "-c", holderScript}, &syscall.ProcAttr{
		Dir: "/", Files: []uintptr{uintptr(fds[0]), uintptr(fds[1]), uintptr(fds[2])}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, 0, err
	}
	s, err := l.proc.stat(pid)
	if err != nil {
		unix.Kill(pid, unix.SIGKILL)
		return 0, 0, err
	}
	l.holder, l.since, l.started, l.dead = pid, pid, s, make(chan struct{})
	return pid, s.started, nil
}

// revoke ends the holder. It returns when the holder has closed the pipes.
func (l *leases) revoke() {
	l.mu.Lock()
	holder, dead := l.holder, l.dead
	if holder != 0 {
		unix.Kill(holder, unix.SIGKILL)
	}
	l.mu.Unlock()
	if holder != 0 {
		<-dead
	}
}

// ended records the end of a child, which may be the holder.
func (l *leases) ended(pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if pid == l.holder && pid != 0 {
		l.holder = 0
		close(l.dead)
	}
}

// newer reports whether a process was started after the last lease. Within one clock tick
// pids increase (unless they wrap).
func (l *leases) newer(pid int, s stat) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if pid == l.holder || l.since == 0 {
		return false
	}
	if age := int32(s.started - l.started.started); age != 0 {
		return age > 0
	}
	return pid > l.since
}

// interrupt implements Exec.Interrupt. A parent is never younger than its children. It gets
// its signal first, so that it does not see them die and continue.
func (l *leader) interrupt(own, others unix.Signal) (int, error) {
	if own != 0 && !l.ended.Load() {
		unix.Kill(l.pid, own)
	}
	var proc procReader
	all := map[int]stat{}
	err := proc.processes(func(pid int, s stat) error {
		all[pid] = s
		return nil
	})
	if err != nil {
		return 0, err
	}
	var found []int
	self := os.Getpid()
	for pid, s := range all {
		if pid != l.pid && !s.zombie && l.belongs(all, pid, self) {
			found = append(found, pid)
		}
	}
	slices.SortFunc(found, func(a, b int) int {
		return cmp.Or(cmp.Compare(int32(all[a].started-all[b].started), 0), cmp.Compare(a, b))
	})
	for _, pid := range found {
		if proc.ignores(pid, others) {
			unix.Kill(pid, unix.SIGKILL)
		} else {
			unix.Kill(pid, others)
		}
	}
	return len(found), nil
}

// belongs reports whether pid and all its ancestors below the command, or below self, are
// newer than the last lease.
func (l *leader) belongs(all map[int]stat, pid, self int) bool {
	for range len(all) {
		s, known := all[pid]
		switch {
		case !known:
			return false
		case pid == l.pid:
			return true
		case !l.leases.newer(pid, s):
			return false
		case s.parent == self:
			return true
		}
		pid = s.parent
	}
	return false
}
