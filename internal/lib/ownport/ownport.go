// Package ownport marks the TCP listeners of agentfense's servers, so that every process in the
// same network namespace can tell them from those of other programs: of any user, state directory
// and moment, without rights over the server's process.
//
// The mark is a socket in the abstract namespace whose name has the listener's cookie, by which the
// kernel identifies a socket (SO_COOKIE, sock_diag(7)). It is there before the listener has a port,
// and goes with its process.
package ownport

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Listen returns a marked listener at a TCP address, which may have several.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var marks []int
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var markErr error
		err := c.Control(func(fd uintptr) {
			var m int
			if m, markErr = mark(int(fd)); markErr == nil {
				marks = append(marks, m)
			}
		})
		return errors.Join(err, markErr)
	}}
	config.SetMultipathTCP(false) // sock_diag would have another socket
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, errors.Join(err, closeAll(marks))
	}
	return &listener{l, marks}, nil
}

type listener struct {
	net.Listener
	marks []int
}

func (l *listener) Close() error {
	marks := l.marks
	l.marks = nil // it may be closed twice
	return errors.Join(l.Listener.Close(), closeAll(marks))
}

func closeAll(fds []int) (err error) {
	for _, fd := range fds {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}

// mark returns a socket that marks another one.
func mark(listener int) (int, error) {
	cookie, err := unix.GetsockoptUint64(listener, unix.SOL_SOCKET, unix.SO_COOKIE)
	if err != nil {
		return -1, os.NewSyscallError("SO_COOKIE", err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err := unix.Bind(fd, nameOf(cookie)); err != nil {
		return -1, errors.Join(os.NewSyscallError("mark the listener: bind", err), unix.Close(fd))
	}
	return fd, nil
}

// nameOf is the name of the mark of a socket.
func nameOf(cookie uint64) *unix.SockaddrUnix {
	return &unix.SockaddrUnix{Name: "@agentfense-listener-" + strconv.FormatUint(cookie, 16)}
}

// Count returns how many sockets listen at a TCP port, at any address of the calling thread's
// network namespace, and whether one of them is marked. Errors: those of the kernel; it is not
// known then.
func Count(port uint16) (n int, marked bool, err error) {
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		cookies, err := listeners(family, port)
		if err != nil {
			return 0, false, err
		}
		n += len(cookies)
		for _, c := range cookies {
			is, err := isMarked(c)
			if err != nil {
				return 0, false, err
			}
			marked = marked || is
		}
	}
	return n, marked, nil
}

// isMarked reports whether there is a mark: no other error says that nobody has the name.
func isMarked(cookie uint64) (bool, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	return !errors.Is(unix.Connect(fd, nameOf(cookie)), unix.ECONNREFUSED), nil
}

// The kernel's interface for information about sockets, see sock_diag(7).
const (
	diagByFamily = 20
	requestBytes = 56      // of an inet_diag_req_v2
	messageBytes = 72      // of an inet_diag_msg
	listening    = 1 << 10 // the state, as a bit
	portAt       = 4       // in an inet_diag_msg
	cookieAt     = 44      // in an inet_diag_msg
)

// listeners returns the cookies of the sockets that listen at a port.
func listeners(family byte, port uint16) ([]uint64, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, request(family, port), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("sock_diag", err)
	}
	var cookies []uint64
	buffer := make([]byte, 32<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if err != nil {
			return nil, os.NewSyscallError("sock_diag", err)
		}
		messages, err := syscall.ParseNetlinkMessage(buffer[:n])
		if err != nil {
			return nil, os.NewSyscallError("sock_diag", err)
		}
		for _, m := range messages {
			switch {
			case m.Header.Type == unix.NLMSG_DONE:
				return cookies, nil
			case m.Header.Type == unix.NLMSG_ERROR && len(m.Data) >= 4:
				return nil, os.NewSyscallError("sock_diag", unix.Errno(-int32(binary.NativeEndian.Uint32(m.Data))))
			case m.Header.Type != diagByFamily || len(m.Data) < messageBytes:
				return nil, errors.New("sock_diag: malformed answer")
			case binary.BigEndian.Uint16(m.Data[portAt:]) == port:
				low, high := binary.NativeEndian.Uint32(m.Data[cookieAt:]), binary.NativeEndian.Uint32(m.Data[cookieAt+4:])
				cookies = append(cookies, uint64(high)<<32|uint64(low))
			}
		}
	}
}

// request asks for the sockets that listen at a port: an inet_diag_req_v2.
func request(family byte, port uint16) []byte {
	header := make([]byte, unix.SizeofNlMsghdr)
	binary.NativeEndian.PutUint32(header[0:], unix.SizeofNlMsghdr+requestBytes)
	binary.NativeEndian.PutUint16(header[4:], diagByFamily)
	binary.NativeEndian.PutUint16(header[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	r := make([]byte, requestBytes)
	r[0], r[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(r[4:], listening)
	binary.BigEndian.PutUint16(r[8:], port)
	return slices.Concat(header, r)
}
