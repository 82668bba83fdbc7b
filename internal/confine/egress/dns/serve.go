package dns

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxQuery     = 4096 // bytes; a question needs 300
	queryTimeout = 10 * time.Second
	// readPause is how long a socket waits that cannot be read.
	readPause = 50 * time.Millisecond
)

// ServePackets answers queries by resolve, as many at once as there is room for tokens, from the
// address that was asked. What comes when too many queries wait is dropped: whoever asks will ask
// again. It returns when the socket is closed.
func ServePackets(c *net.UDPConn, tokens chan struct{}, resolve func(packet []byte) []byte) {
	for {
		packet, oob := make([]byte, maxQuery), make([]byte, 128)
		n, oobn, _, from, err := c.ReadMsgUDPAddrPort(packet, oob)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(readPause)
			continue
		}
		select {
		case tokens <- struct{}{}:
		default:
			continue
		}
		go func() {
			defer func() { <-tokens }()
			if reply := resolve(packet[:n]); reply != nil {
				_, _, _ = c.WriteMsgUDPAddrPort(reply, sameAddress(oob[:oobn]), from) // a lost answer is asked for again
			}
		}()
	}
}

// sameAddress makes, of the control message that says where a packet went to, the one that
// sends the answer from there (ip(7), ipv6(7)).
func sameAddress(oob []byte) []byte {
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

// ServeStream answers the queries of a connection by resolve (RFC 7766).
func ServeStream(c *net.TCPConn, resolve func(packet []byte) []byte) {
	for {
		if c.SetDeadline(time.Now().Add(queryTimeout)) != nil {
			return
		}
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		packet := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, packet); err != nil {
			return
		}
		reply := resolve(packet)
		if reply == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}
