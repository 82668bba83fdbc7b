package egress

import (
	"context"
	"net"
	"net/netip"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/question"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// dialLocalhost connects to a port of this host's loopback. Nothing is sent before the supervisor
// has looked who listens there: a listener that has taken the connection is still there then, or
// the connection is refused.
func (p *process) dialLocalhost(ctx context.Context, port uint16) (*net.TCPConn, error) {
	c, err := p.connectFirst(ctx, []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, port)
	if err != nil {
		return nil, err
	}
	if reason := p.checks.Check(ctx, port); reason != "" {
		c.Close()
		return nil, refusal{reason}
	}
	return c.(*net.TCPConn), nil
}

// checkPort answers a process that has connected to a port of localhost. Errors: of the wire.
func (e *Egress) checkPort(c *child, id uint64, port uint16) error {
	_, allowed := e.ruleOf(allowlist.Localhost, port)
	if _, secret := e.secretRule(allowlist.Localhost, port); !allowed && !secret {
		return errdefs.New(errdefs.Internal, "it asked for a port of localhost that no rule allows")
	}
	reason := question.ReasonOfPort(port)
	e.orders.Lock()
	defer e.orders.Unlock()
	return e.tell(c, func() error { return c.wire.send(order{Checked: id, Refused: reason}) })
}
