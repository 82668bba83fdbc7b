package netns

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// loopback is the index of lo in every network namespace (net/core/dev.c, dev_new_index).
const loopback = 1

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
	if err := addLocalDefault(fd, unix.AF_INET); err != nil {
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
	b := make([]byte, 0, unix.SizeofNlMsghdr+unix.SizeofRtMsg+attribute)
	b = binary.NativeEndian.AppendUint32(b, uint32(cap(b)))
	b = binary.NativeEndian.AppendUint16(b, unix.RTM_NEWROUTE)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE)
	b = binary.NativeEndian.AppendUint32(b, 1) // sequence
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = append(b, family, 0, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_BOOT, unix.RT_SCOPE_HOST, unix.RTN_LOCAL)
	b = binary.NativeEndian.AppendUint32(b, 0) // flags
	b = binary.NativeEndian.AppendUint16(b, attribute)
	b = binary.NativeEndian.AppendUint16(b, unix.RTA_OIF)
	b = binary.NativeEndian.AppendUint32(b, loopback)
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
