package netns

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// loopback is the index of lo in every network namespace (net/core/dev.c, dev_new_index).
const loopback = 1

// address is lo's own.
var address = netip.MustParseAddr("100.64.0.1")

// setUp makes every address of the calling thread's namespace local.
func setUp() error {
	if err := raise("lo"); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := errors.Join(addAddress(fd, address), addLocalDefault(fd, unix.AF_INET)); err != nil {
		return err
	}
	err = addLocalDefault(fd, unix.AF_INET6)
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EACCES) {
		return nil // a host without IPv6 has none inside either
	}
	return err
}

// raise sets an interface up.
func raise(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// addLocalDefault adds the route "local default dev lo" to the table local (rtnetlink(7)).
func addLocalDefault(fd int, family uint8) error {
	const attribute = unix.SizeofRtAttr + 4
	b := appendHeader(nil, unix.RTM_NEWROUTE, unix.SizeofRtMsg+attribute)
	b = append(b, family, 0, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_BOOT, unix.RT_SCOPE_HOST, unix.RTN_LOCAL)
	b = binary.NativeEndian.AppendUint32(b, 0) // flags
	b = binary.NativeEndian.AppendUint16(b, attribute)
	b = binary.NativeEndian.AppendUint16(b, unix.RTA_OIF)
	b = binary.NativeEndian.AppendUint32(b, loopback)
	return ask(fd, b)
}

// addAddress gives lo an IPv4 address besides 127.0.0.1. A program that asks for the addresses of
// a name with AI_ADDRCONFIG, as apt does, gets none on a host that has no other (getaddrinfo(3)).
func addAddress(fd int, address netip.Addr) error {
	const attribute = unix.SizeofRtAttr + 4
	b := appendHeader(nil, unix.RTM_NEWADDR, unix.SizeofIfAddrmsg+attribute)
	b = append(b, unix.AF_INET, byte(address.BitLen()), 0, unix.RT_SCOPE_HOST)
	b = binary.NativeEndian.AppendUint32(b, loopback)
	b = binary.NativeEndian.AppendUint16(b, attribute)
	b = binary.NativeEndian.AppendUint16(b, unix.IFA_LOCAL)
	b = append(b, address.AsSlice()...)
	return ask(fd, b)
}

// appendHeader begins a request whose header is followed by size bytes (netlink(7)).
func appendHeader(b []byte, kind uint16, size int) []byte {
	b = binary.NativeEndian.AppendUint32(b, uint32(unix.SizeofNlMsghdr+size))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE)
	b = binary.NativeEndian.AppendUint32(b, 1)    // sequence
	return binary.NativeEndian.AppendUint32(b, 0) // port
}

// ask sends a request and reads how it ended.
func ask(fd int, b []byte) error {
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return unix.EPROTO
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}
