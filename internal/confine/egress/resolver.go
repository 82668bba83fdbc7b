package egress

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/agentfense/agentfense/internal/confine/egress/dns"
	"github.com/agentfense/agentfense/internal/confine/egress/netns"
)

const (
	maxQuery     = 4096 // bytes; a question needs 300
	queryTimeout = 10 * time.Second
)

const reasonNotAllowed = "not in the allowlist"

// serveResolver answers DNS queries at packet sockets and listeners, which it takes over.
func (p *process) serveResolver(packets, listeners []*os.File) error {
	defer closeAll(packets)
	defer closeAll(listeners)
	for _, f := range packets {
		c, err := net.FilePacketConn(f)
		if err != nil {
			return err
		}
		udp, is := c.(*net.UDPConn)
		if !is {
			return errors.New("malformed order")
		}
		go p.servePackets(udp)
	}
	for _, f := range listeners {
		l, err := net.FileListener(f)
		if err != nil {
			return err
		}
		p.accept(l, p.conns, p.serveQueries) // one that says nothing takes no query's place
	}
	return nil
}

// servePackets answers from the address that was asked. What comes when too many queries wait is
// dropped: whoever asks will ask again.
func (p *process) servePackets(c *net.UDPConn) {
	for {
		packet, oob := make([]byte, maxQuery), make([]byte, 128)
		n, oobn, _, from, err := c.ReadMsgUDPAddrPort(packet, oob)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(acceptPause)
			continue
		}
		select {
		case p.queries <- struct{}{}:
		default:
			continue
		}
		go func() {
			defer func() { <-p.queries }()
			if reply := p.resolve(packet[:n]); reply != nil {
				_, _, _ = c.WriteMsgUDPAddrPort(reply, netns.SameAddress(oob[:oobn]), from) // a lost answer is asked for again
			}
		}()
	}
}

// serveQueries answers the queries of a connection (RFC 7766).
func (p *process) serveQueries(c *net.TCPConn) {
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
		reply := p.resolve(packet)
		if reply == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

// resolve answers a query; nil is no answer.
func (p *process) resolve(packet []byte) []byte {
	q, err := dns.Read(packet)
	switch {
	case err != nil:
		return nil
	case q.Header.OpCode != 0:
		return q.Refuse(dnsmessage.RCodeNotImplemented)
	case q.Class != dnsmessage.ClassINET:
		return q.Refuse(dnsmessage.RCodeRefused)
	}
	host, err := q.Host()
	if reason := reasonGuarded(p.secrets.all, host); err == nil && reason != "" && !p.live.intercepts(host) {
		return p.denyName(&q, reason)
	}
	if err != nil || !p.live.covers(host) {
		return p.denyName(&q, reasonNotAllowed)
	}
	addr, refused := p.hosts.Find(p.ctx, host)
	if refused != "" {
		return p.denyName(&q, refused)
	}
	return q.Answer(addr)
}

// denyName says that there is no such name. It does not report the question for an address's name,
// which many programs ask of themselves.
func (p *process) denyName(q *dns.Question, reason string) []byte {
	if name := q.Asked(); !strings.HasSuffix(strings.ToLower(name), ".arpa") {
		weight := 0
		if q.IsAskedFirst() {
			weight = 1
		}
		p.denials.note(name, 0, reason, weight)
	}
	return q.Refuse(dnsmessage.RCodeNameError)
}
