package seccomp

import (
	"encoding/binary"
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Listener has the attempts that the filter of sockets refuses. It is for one goroutine. Its
// descriptor is closed on execve. When no process has it any more, the kernel answers ENOSYS.
type Listener struct {
	fd     int
	buffer []byte // for the kernel's struct seccomp_notif
	answer []byte // for its struct seccomp_notif_resp
}

// Attempt is a refused call of socket or socketpair. Its caller waits for Refuse.
type Attempt struct {
	id       uint64
	errno    unix.Errno // the answer
	Thread   int        // id of the calling thread, in this process's pid namespace
	Family   uint32
	Type     uint32 // without flags
	Protocol uint32
}

// The fields of a struct seccomp_notif and of a struct seccomp_notif_resp (linux/seccomp.h).
const (
	notifID, notifPID, notifNumber, notifArgs, notifBytes = 0, 8, 16, 32, 80
	answerID, answerError, answerBytes                    = 0, 16, 24
)

// notifSizes is struct seccomp_notif_sizes.
type notifSizes struct{ notification, answer, data uint16 }

// listen installs the notifying form of program.
func listen(program []byte) (*Listener, error) {
	var sizes notifSizes
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_NOTIF_SIZES, 0, uintptr(unsafe.Pointer(&sizes))); errno != 0 {
		return nil, errdefs.New(errdefs.Unsupported, "seccomp notifications: %w", errno)
	}
	if sizes.notification < notifBytes || sizes.answer < answerBytes {
		return nil, errdefs.New(errdefs.Unsupported, "seccomp notifications: unknown form")
	}
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH
	program = notifying(program)
	// From Linux 5.19 on, a signal does not interrupt the wait for an answer, and so no attempt
	// counts twice.
	fd, err := install(program, flags|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
	if errors.Is(err, unix.EINVAL) {
		fd, err = install(program, flags)
	}
	if err != nil {
		return nil, err
	}
	return &Listener{fd: fd, buffer: make([]byte, sizes.notification), answer: make([]byte, sizes.answer)}, nil
}

// FD returns the descriptor, which poll(2) reports as readable when there is an attempt.
func (l *Listener) FD() int { return l.fd }

// Receive returns an attempt. Call it when poll(2) reports one, else it waits. Errors: unix.ENOENT
// if the caller has ended meanwhile, or was interrupted; others of the kernel.
func (l *Listener) Receive() (Attempt, error) {
	clear(l.buffer)
	if err := l.ioctl(unix.SECCOMP_IOCTL_NOTIF_RECV, l.buffer); err != nil {
		return Attempt{}, err
	}
	arg := func(i int) uint64 { return binary.NativeEndian.Uint64(l.buffer[notifArgs+8*i:]) }
	pair := binary.NativeEndian.Uint32(l.buffer[notifNumber:]) == unix.SYS_SOCKETPAIR
	return Attempt{
		id:     binary.NativeEndian.Uint64(l.buffer[notifID:]),
		errno:  SocketErrno(pair, arg(0), arg(1), arg(2)),
		Thread: int(binary.NativeEndian.Uint32(l.buffer[notifPID:])),
		Family: uint32(arg(0)), Type: uint32(arg(1)) & SocketTypes, Protocol: uint32(arg(2)),
	}, nil
}

// Refuse ends the call with the errno of its socket. It never lets a call through. A caller that
// has ended meanwhile is no error.
func (l *Listener) Refuse(a Attempt) error {
	clear(l.answer)
	binary.NativeEndian.PutUint64(l.answer[answerID:], a.id)
	binary.NativeEndian.PutUint32(l.answer[answerError:], uint32(-int32(a.errno)))
	err := l.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, l.answer)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINPROGRESS) {
		return nil
	}
	return err
}

func (l *Listener) ioctl(request uintptr, argument []byte) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(l.fd), request, uintptr(unsafe.Pointer(&argument[0])))
		if errno == 0 {
			return nil
		}
		if errno != unix.EINTR {
			return errno
		}
	}
}

// SocketErrno returns what the filter answers to the arguments of socket(2), or socketpair(2), that
// it refuses, where it does not notify. It follows the rules of package denylist, in their order.
func SocketErrno(pair bool, family, kind, protocol uint64) unix.Errno {
	switch kind &= SocketTypes; {
	case uint32(family) == unix.AF_NETLINK && uint32(protocol) != 0:
		return unix.EPROTONOSUPPORT
	case !pair && isOldTransport(uint32(protocol)):
		return unix.EPROTONOSUPPORT
	case !pair && kind == unix.SOCK_DCCP:
		return unix.ESOCKTNOSUPPORT
	case !isKnownFamily(family):
		return unix.EAFNOSUPPORT
	case kind == unix.SOCK_DGRAM:
		return unix.EACCES // of ICMP
	}
	return unix.EPERM
}

func isOldTransport(protocol uint32) bool {
	return protocol == unix.IPPROTO_SCTP || protocol == unix.IPPROTO_DCCP || protocol == ProtocolL2TP || protocol == ProtocolSMC
}

func isKnownFamily(family uint64) bool {
	switch family {
	case unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK:
		return true
	}
	return false
}
