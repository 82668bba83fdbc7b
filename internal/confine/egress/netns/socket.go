package netns

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// backlog is how many connections wait to be accepted: the kernel's own bound (net.core.somaxconn)
// is below it or equal.
const backlog = 4096

func listenTCP(at netip.AddrPort) (int, error) {
	fd, err := bound(at, unix.SOCK_STREAM)
	if err != nil {
		return -1, err
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

func listenUDP(at netip.AddrPort) (int, error) {
	fd, err := bound(at, unix.SOCK_DGRAM)
	if err != nil {
		return -1, err
	}
	if at.Addr().Is4() {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
	} else {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

func bound(at netip.AddrPort, kind int) (int, error) {
	family, address := unix.AF_INET, unix.Sockaddr(nil)
	if at.Addr().Is4() {
		address = &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	} else {
		family, address = unix.AF_INET6, &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil && family == unix.AF_INET6 {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if err == nil && family == unix.AF_INET6 { // unlike IPv4's, this bind does not ask the routes
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1)
	}
	if err == nil {
		err = unix.Bind(fd, address)
	}
	if err != nil {
		_ = unix.Close(fd) // the bind's error tells
		return -1, err
	}
	return fd, nil
}

// SameAddress makes, of the control message that says where a packet went to, the one that
// sends the answer from there (ip(7), ipv6(7)).
func SameAddress(oob []byte) []byte {
	controls, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, c := range controls {
		switch {
		case c.Header.Level == unix.IPPROTO_IP && c.Header.Type == unix.IP_PKTINFO && len(c.Data) >= unix.SizeofInet4Pktinfo:
			return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: [4]byte(c.Data[8:12])})
		case c.Header.Level == unix.IPPROTO_IPV6 && c.Header.Type == unix.IPV6_PKTINFO && len(c.Data) >= unix.SizeofInet6Pktinfo:
			return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: [16]byte(c.Data[:16])})
		}
	}
	return nil
}
