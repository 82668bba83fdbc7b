package connlimit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// peerOf names the other end: a user of this host, or an address. For IPv6 it is the /64 network,
// because one host can use all of it.
func peerOf(c net.Conn) string {
	if u, ok := c.(*net.UnixConn); ok {
		return userOfUnix(u)
	}
	remote, ok := addrOf(c.RemoteAddr())
	if !ok {
		return c.RemoteAddr().String()
	}
	if local, ok := addrOf(c.LocalAddr()); ok && (remote.Addr().IsLoopback() || remote.Addr() == local.Addr()) {
		if uid, err := ownerOf(remote, local); err == nil {
			return fmt.Sprintf("user %d", uid)
		}
	}
	if ip := remote.Addr(); ip.Is6() {
		return netip.PrefixFrom(ip.WithZone(""), 64).Masked().String()
	}
	return remote.Addr().String()
}

func addrOf(a net.Addr) (netip.AddrPort, bool) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, false
	}
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), true
}

func userOfUnix(c *net.UnixConn) string {
	raw, err := c.SyscallConn()
	var cred *unix.Ucred
	if err == nil {
		err = errors.Join(raw.Control(func(fd uintptr) {
			cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		}), err)
	}
	if err != nil || cred == nil {
		return "unix"
	}
	return fmt.Sprintf("user %d", cred.Uid)
}

// The kernel's interface for information about sockets, see sock_diag(7).
const (
	diagByFamily    = 20
	diagHeaderBytes = 4 + diagIDBytes // of an inet_diag_msg, up to idiag_expires
	diagIDBytes     = 48
	diagMsgBytes    = diagHeaderBytes + 20
	established     = 1
)

var errNoOwner = errors.New("the kernel does not tell who has the socket")

// ownerOf returns the user of the socket at local that is connected to remote, both on this host.
// The kernel does not know the owner of a socket that is no longer connected.
func ownerOf(local, remote netip.AddrPort) (uid uint32, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	patience := unix.NsecToTimeval(int64(100 * time.Millisecond))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		return 0, err
	}
	if err := unix.Sendto(fd, diagRequest(local, remote), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	answer := make([]byte, 4<<10)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return 0, err
	}
	messages, err := syscall.ParseNetlinkMessage(answer[:n])
	if err != nil {
		return 0, err
	}
	for _, m := range messages {
		if m.Header.Type == diagByFamily && len(m.Data) >= diagMsgBytes && m.Data[1] == established {
			return binary.NativeEndian.Uint32(m.Data[diagHeaderBytes+12:]), nil
		}
	}
	return 0, errNoOwner
}

// diagRequest asks for one socket: an inet_diag_req_v2.
func diagRequest(local, remote netip.AddrPort) []byte {
	b := make([]byte, unix.SizeofNlMsghdr+8+diagIDBytes)
	binary.NativeEndian.PutUint32(b[0:], uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], diagByFamily)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	r := b[unix.SizeofNlMsghdr:]
	r[0], r[1] = unix.AF_INET, unix.IPPROTO_TCP
	if local.Addr().Is6() {
		r[0] = unix.AF_INET6
	}
	binary.NativeEndian.PutUint32(r[4:], ^uint32(0)) // in any state
	id := r[8:]
	binary.BigEndian.PutUint16(id[0:], local.Port())
	binary.BigEndian.PutUint16(id[2:], remote.Port())
	copy(id[4:20], local.Addr().AsSlice())
	copy(id[20:36], remote.Addr().AsSlice())
	binary.NativeEndian.PutUint64(id[40:], ^uint64(0)) // no cookie
	return b
}
