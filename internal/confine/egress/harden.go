package egress

import (
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/seccomp"
)

// harden gives up what a fault in a parser could misuse: system calls that this process does not
// make, and being traced or dumped by others of the same user.
func harden() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	// With a limit of 1 the kernel pipes no dump either (fs/coredump.c). One of 0 stays.
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1})
	// no_new_privs is a thread's, and the filter needs it on the thread that sets the filter
	// for all.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return seccomp.ConfineEgress()
}
