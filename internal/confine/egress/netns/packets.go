package netns

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// packetsRoom is how many bytes of packets wait to be read, as far as the host allows that
// (net.core.rmem_max).
const packetsRoom = 1 << 20

// Raw returns a raw socket that receives the packets of a protocol that a filter keeps. The filter
// cannot be changed any more. Errors: Unsupported, also for a family that this host has not.
func (n *Namespace) Raw(family, protocol int, filter []unix.SockFilter) (*os.File, error) {
	fd, err := n.call(func() (int, error) { return raw(family, protocol, filter) })
	if err != nil {
		return nil, errdefs.New(errdefs.Unsupported, "network namespace: see what the kernel refuses: %w", err)
	}
	return os.NewFile(uintptr(fd), "raw"), nil
}

func raw(family, protocol int, filter []unix.SockFilter) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w: it needs CAP_NET_RAW", err)
	}
	if err != nil {
		return -1, err
	}
	if err := limitPackets(fd, filter); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// limitPackets has a raw socket receive what the filter keeps.
func limitPackets(fd int, filter []unix.SockFilter) error {
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_LOCK_FILTER, 1); err != nil {
		return err
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, packetsRoom)
}

// Stream returns a TCP socket of the namespace that is not connected yet. Errors: Exhausted.
func (n *Namespace) Stream(family int) (*os.File, error) {
	fd, err := n.call(func() (int, error) {
		return unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	})
	if err != nil {
		return nil, errdefs.New(errdefs.Exhausted, "socket in the sandbox: %w", err)
	}
	return os.NewFile(uintptr(fd), "stream"), nil
}
