package address

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

var errLocal = errors.New("the name leads to an address of this host, or to none that it routes")

// CheckRoute refuses an address that the host does not send on: one of its own, a broadcast
// address, or one that it routes nowhere (rtnetlink(7), RTM_GETROUTE).
func CheckRoute(addr netip.Addr) error {
	switch kind, err := routeType(addr.Unmap()); {
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("where the name leads cannot be checked: %w", err)
	case err != nil, kind != unix.RTN_UNICAST:
		return errLocal
	}
	return nil
}

// routeType asks the kernel how it would route a packet to addr.
func routeType(addr netip.Addr) (byte, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, routeRequest(addr), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return 0, err
	}
	const kindAt = unix.SizeofNlMsghdr + 7 // rtm_type
	if n <= kindAt || binary.NativeEndian.Uint16(answer[4:]) != unix.RTM_NEWROUTE {
		return 0, unix.ENETUNREACH
	}
	return answer[kindAt], nil
}

func routeRequest(addr netip.Addr) []byte {
	destination, family := addr.AsSlice(), byte(unix.AF_INET)
	if addr.Is6() {
		family = unix.AF_INET6
	}
	attribute := unix.SizeofRtAttr + len(destination)
	size := unix.SizeofNlMsghdr + unix.SizeofRtMsg + attribute
	b := binary.NativeEndian.AppendUint32(make([]byte, 0, size), uint32(size))
	b = binary.NativeEndian.AppendUint16(b, unix.RTM_GETROUTE)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
	b = binary.NativeEndian.AppendUint32(b, 1) // sequence
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = append(b, family, byte(8*len(destination)), 0, 0, 0, 0, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, 0) // flags
	b = binary.NativeEndian.AppendUint16(b, uint16(attribute))
	b = binary.NativeEndian.AppendUint16(b, unix.RTA_DST)
	return append(b, destination...)
}
