package seccomp

import (
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// SocketTypes is SOCK_TYPE_MASK of linux/net.h. ProtocolL2TP and ProtocolSMC are IPPROTO_L2TP and
// IPPROTO_SMC of linux/in.h.
const (
	SocketTypes  = 0xf
	ProtocolL2TP = 115
	ProtocolSMC  = 256
)

const returnValue = unix.BPF_RET | unix.BPF_K // the code of an instruction that returns a constant

// ConfineSockets puts all threads of this process, and all that they start, under the filter of
// sockets, for good. no_new_privs must be set. It returns a Listener that has each refused
// attempt, and that must be served: the caller of socket(2) waits for the answer. Where the kernel
// has no notifications, or another filter has a listener already, the filter itself answers and
// ConfineSockets returns nil with why as quiet.
//
// Errors: Unsupported; then this process is not under the filter.
func ConfineSockets() (l *Listener, quiet, err error) {
	program := slices.Clone(socketProgram)
	if getsICMP() {
		replaceReturns(program, unix.SECCOMP_RET_ERRNO|uint32(unix.EACCES), unix.SECCOMP_RET_ALLOW)
	}
	l, quiet = listen(program)
	if quiet == nil {
		return l, nil, nil
	}
	// With TSYNC and a filter that differs from that of a thread the result is the thread.
	switch thread, err := install(program, unix.SECCOMP_FILTER_FLAG_TSYNC); {
	case err != nil:
		return nil, nil, err
	case thread != 0:
		return nil, nil, errdefs.New(errdefs.Unsupported, "seccomp filter: thread %d has another one", thread)
	}
	return nil, quiet, nil
}

// getsICMP reports whether the kernel gives this process a socket of ICMP, as ping uses it: its
// group is in net.ipv4.ping_group_range.
func getsICMP() bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	if err == nil {
		unix.Close(fd)
	}
	return !errors.Is(err, unix.EACCES)
}

// replaceReturns replaces a value that program returns.
func replaceReturns(program []byte, was, is uint32) {
	for i := 0; i < len(program); i += instruction {
		if binary.LittleEndian.Uint16(program[i:]) == returnValue && binary.LittleEndian.Uint32(program[i+value:]) == was {
			binary.LittleEndian.PutUint32(program[i+value:], is)
		}
	}
}

// notifying returns program with notifications instead of errors.
func notifying(program []byte) []byte {
	program = slices.Clone(program)
	for i := 0; i < len(program); i += instruction {
		result := binary.LittleEndian.Uint32(program[i+value:])
		if binary.LittleEndian.Uint16(program[i:]) == returnValue && result&unix.SECCOMP_RET_ACTION_FULL == unix.SECCOMP_RET_ERRNO {
			binary.LittleEndian.PutUint32(program[i+value:], unix.SECCOMP_RET_USER_NOTIF)
		}
	}
	return program
}
