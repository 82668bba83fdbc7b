package seccomp

import (
	"encoding/binary"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// ConfineEgress puts all threads of this process, for good, under the filter of the egress
// process. no_new_privs must be set.
//
// Errors: Unsupported.
func ConfineEgress() error {
	thread, err := install(egressProgram, unix.SECCOMP_FILTER_FLAG_TSYNC)
	if err != nil {
		return err
	}
	if thread != 0 {
		return errdefs.New(errdefs.Unsupported, "seccomp filter: thread %d has another one", thread)
	}
	return nil
}

// install calls seccomp(2) with an embedded program and flags, and returns what that returns.
//
// Errors: Unsupported.
func install(program []byte, flags uintptr) (int, error) {
	if len(program) == 0 {
		return 0, errdefs.New(errdefs.Unsupported, "seccomp filter: not available for this architecture")
	}
	filter := make([]unix.SockFilter, len(program)/instruction)
	if _, err := binary.Decode(program, binary.LittleEndian, filter); err != nil {
		return 0, errdefs.New(errdefs.Internal, "seccomp filter: %w", err)
	}
	argument := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	result, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&argument)))
	runtime.KeepAlive(&argument)
	if errno != 0 {
		return 0, errdefs.New(errdefs.Unsupported, "seccomp filter: %w", errno)
	}
	return int(result), nil
}
