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

// Packets returns a socket that receives the packets on lo that a filter keeps, from their IP
// header on. The filter cannot be changed any more. Errors: Unsupported.
func (n *Namespace) Packets(filter []unix.SockFilter) (*os.File, error) {
	fd, err := n.call(func() (int, error) { return packets(filter) })
	if err != nil {
		return nil, errdefs.New(errdefs.Unsupported, "network namespace: see what the kernel refuses: %w", err)
	}
	return os.NewFile(uintptr(fd), "packets"), nil
}

func packets(filter []unix.SockFilter) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0) // it receives nothing yet
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

// limitPackets has a packet socket receive what the filter keeps, once: lo sees each packet leave
// and arrive.
func limitPackets(fd int, filter []unix.SockFilter) error {
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}); err != nil {
		return err
	}
	for _, option := range [][3]int{
		{unix.SOL_SOCKET, unix.SO_LOCK_FILTER, 1},
		{unix.SOL_SOCKET, unix.SO_RCVBUF, packetsRoom},
		{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1},
	} {
		if err := unix.SetsockoptInt(fd, option[0], option[1], option[2]); err != nil {
			return err
		}
	}
	return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ALL), Ifindex: loopback})
}

// bigEndian is a number in the order of bytes of the network.
func bigEndian(n uint16) uint16 { return n<<8 | n>>8 }

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
