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

// A limit of processes without a control group is RLIMIT_NPROC: since Linux 5.14
// it counts the processes and threads of a user in one user namespace, and a
// sandbox has one of its own. The reasons stand in docs/adr/0026.

// processesEnv tells PID 1 the limit, in its environment.
const processesEnv = "AGENTFENSE_PROCESSES"

// LimitEnv is what PID 1's environment needs besides InitEnv to limit the
// processes and threads of the sandbox to n, itself and its leaders included. The
// sandbox must be in a user namespace of its own, without privileges.
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

// errNotLimited means that the kernel lets us start more than the limit allows.
var errNotLimited = errors.New("RLIMIT_NPROC does not hold here: the kernel lets this user start more")

// limitProcesses sets the limit that the environment asks for, if it asks for one,
// for this process and all that it starts. It cannot be raised again: no process
// inside has CAP_SYS_RESOURCE over the host.
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
	// What the runtime needs threads for it needs now: later there may be none.
	runtime.GC()
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &now); err != nil {
		return err
	}
	n = min(n, now.Max) // the caller's own may be lower, and cannot be raised
	return unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: n, Max: n})
}

// limitHolds tries a limit of one process in a child, which must then be refused
// one of its own.
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

// tryLimit is fork and what the child does, which is a copy of this thread alone:
// system calls and nothing else.
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
