package guest

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Without a control group, RLIMIT_NPROC limits the processes. Since Linux 5.14 it counts
// the processes and threads of a user in one user namespace, and each sandbox has its own
// user namespace. See docs/adr/0026.

// processesEnv is the environment variable with the limit, for PID 1.
const processesEnv = "AGENTFENSE_PROCESSES"

// LimitEnv returns the variable for PID 1's environment that limits the processes and
// threads of the sandbox to n, including PID 1 and the leaders. The sandbox must have its
// own user namespace, and no privileges.
func LimitEnv(n int64) string { return processesEnv + "=" + strconv.FormatInt(n, 10) }

// CanLimitProcesses reports whether the kernel counts processes by user namespace.
func CanLimitProcesses() bool {
	var host unix.Utsname
	if err := unix.Uname(&host); err != nil {
		return false
	}
	return countsByNamespace(unix.ByteSliceToString(host.Release[:]))
}

// countsByNamespace reads the release of a kernel: 5.14 or later.
func countsByNamespace(release string) bool {
	first, rest, _ := strings.Cut(release, ".")
	second := rest
	if i := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		second = rest[:i]
	}
	major, err := strconv.Atoi(first)
	minor, err2 := strconv.Atoi(second)
	if err != nil || err2 != nil {
		return false
	}
	return major > 5 || major == 5 && minor >= 14
}

// errNotLimited means that the kernel does not enforce the limit.
var errNotLimited = errors.New("the kernel does not enforce RLIMIT_NPROC for this user")

// limitProcesses sets the limit in the environment, if any, for this process and all that
// it starts. No process inside can raise it, because none has CAP_SYS_RESOURCE over the
// host.
func limitProcesses() error {
	text, asked := os.LookupEnv(processesEnv)
	if !asked {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || !CanLimitProcesses() {
		return errors.Join(err, errNotLimited)
	}
	if !limitHolds() {
		return errNotLimited
	}
	// Make the runtime create its threads now: later the limit may be reached.
	runtime.GC()
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &now); err != nil {
		return err
	}
	n = min(n, now.Max) // the present limit may be lower, and cannot be raised
	return unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: n, Max: n})
}

// limitHolds tests a limit of one process in a child, for which fork must then fail.
func limitHolds() bool {
	pid := tryLimit()
	if pid <= 0 {
		return false
	}
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(pid, &status, 0, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && status.Exited() && status.ExitStatus() == 0
		}
	}
}

// tryLimit forks, and is the child's code. The child has only this thread, so it may only
// make system calls.
//
//go:norace
func tryLimit() int {
	one := [2]uint64{1, 1}
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return -1
	}
	if pid != 0 {
		return int(pid)
	}
	code := uintptr(1)
	_, _, errno = unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NPROC, uintptr(unsafe.Pointer(&one)), 0, 0, 0)
	if errno == 0 {
		_, _, errno = unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno == unix.EAGAIN {
			code = 0
		}
	}
	for {
		_, _, _ = unix.RawSyscall6(unix.SYS_EXIT_GROUP, code, 0, 0, 0, 0, 0)
	}
}
