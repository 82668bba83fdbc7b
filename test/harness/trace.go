package harness

import (
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
	if err := unix.PtraceSeize(pid); err != nil {
		return fmt.Errorf("seize: %w", err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil {
		return fmt.Errorf("wait: %w", err)
	}
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACEFORK); err != nil {
		return fmt.Errorf("options: %w", err)
	}
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		return err
	}
	child := 0
	for child == 0 || moment == WhenBinding && !lets(pid) {
		resume := unix.PtraceCont
		if child != 0 {
			resume = unix.PtraceSyscall
		}
		sig := 0
		if status.Stopped() && status.TrapCause() <= 0 && status.StopSignal() != unix.SIGTRAP {
			sig = int(status.StopSignal())
		}
		if err := resume(pid, sig); err != nil {
			return fmt.Errorf("resume: %w", err)
		}
		if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil || !status.Stopped() {
			return fmt.Errorf("bwrap ended early: %v, %#x", err, status)
		}
		if status.TrapCause() == unix.PTRACE_EVENT_FORK {
			born, err := unix.PtraceGetEventMsg(pid)
			if err != nil {
				return err
			}
			child = int(born)
			if _, err := unix.Wait4(child, &status, unix.WALL, nil); err != nil {
				return err
			}
			status = 0
		}
	}
	do(pid, child)
	for _, p := range []int{child, pid} {
		err := unix.PtraceDetach(p)
		if err == unix.ESRCH { // it was killed, which its parent hears of after us
			_, err = unix.Wait4(p, &status, unix.WALL, nil)
		}
		if err != nil {
			return fmt.Errorf("detach: %w", err)
		}
	}
	return nil
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
