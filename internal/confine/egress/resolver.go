package egress

import (
	"errors"
	"net"
	"os"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/dns"
)

// NotAllowed is the reason of a refusal that a rule for the host would have prevented.
const NotAllowed = "not in the allowlist"

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
		go dns.ServePackets(udp, p.queries, p.resolve)
	}
	for _, f := range listeners {
		l, err := net.FileListener(f)
		if err != nil {
			return err
		}
		p.accept(l, p.conns, func(c *net.TCPConn) { dns.ServeStream(c, p.resolve) }) // one that says nothing takes no query's place
	}
	return nil
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
	if reason := reasonGuarded(p.secrets.all, target{host: host}); err == nil && reason != "" && !p.live.intercepts(host) {
		return p.denyName(&q, reason)
	}
	if err != nil || !p.live.covers(host) && !p.isPermitted(host) {
		return p.denyName(&q, NotAllowed)
	}
	addr, refused := p.hosts.Find(p.ctx, host)
	if refused != "" {
		return p.denyName(&q, refused)
	}
	return q.Answer(addr)
}

// isPermitted asks whether a host may be reached that no rule allows, and reports whether one does
// then.
func (p *process) isPermitted(host allowlist.Host) bool {
	if p.permits == nil || strings.HasSuffix(string(host), ".arpa") {
		return false
	}
	return p.permits.Request(p.ctx, string(host)) && p.live.covers(host)
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
