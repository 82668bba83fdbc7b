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
	if len(egressProgram) == 0 {
		return errdefs.New(errdefs.Unsupported, "seccomp filter: not available for this architecture")
	}
	filter := make([]unix.SockFilter, len(egressProgram)/instruction)
	if _, err := binary.Decode(egressProgram, binary.LittleEndian, filter); err != nil {
		return errdefs.New(errdefs.Internal, "seccomp filter: %w", err)
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(&program)
	switch {
	case errno != 0:
		return errdefs.New(errdefs.Unsupported, "seccomp filter: %w", errno)
	case thread != 0:
		return errdefs.New(errdefs.Unsupported, "seccomp filter: thread %d has another one", thread)
	}
	return nil
}
