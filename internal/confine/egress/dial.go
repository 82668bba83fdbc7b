package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
)

const (
	dialPatience    = 30 * time.Second
	attemptPatience = 10 * time.Second // to one of a host's addresses
)

// target is what a program inside connects to.
type target struct {
	host allowlist.Host
	port uint16
}

// dial connects to the target. A name's addresses are looked up and checked each time; an address
// that a rule names is checked when the rule is read, and for being another host's here. Errors: a
// refusal, if no address may be used.
func (p *process) dial(t target) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(p.ctx, dialPatience)
	defer cancel()
	addrs, err := p.addresses(ctx, t.host)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, addr := range addrs {
		attempt, end := context.WithTimeout(ctx, attemptPatience)
		c, dialErr := p.connect(attempt, "tcp", netip.AddrPortFrom(addr, t.port).String())
		end()
		if dialErr == nil {
			return c.(*net.TCPConn), nil
		}
		errs = append(errs, dialErr)
	}
	return nil, errors.Join(errs...)
}

// addresses returns those of the host's addresses that may be used.
func (p *process) addresses(ctx context.Context, h allowlist.Host) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(string(h)); err == nil {
		if err := checkRoute(addr); err != nil {
			return nil, refusal{err.Error()}
		}
		return []netip.Addr{addr}, nil
	}
	all, err := p.lookup(ctx, string(h)+".") // with the dot no search domain is tried
	if err != nil {
		return nil, err
	}
	var usable []netip.Addr
	err = refusal{"the name has no address that is a public one"}
	for _, addr := range all {
		if unfit := p.check(addr); unfit != nil {
			err = refusal{unfit.Error()}
			continue
		}
		usable = append(usable, addr)
	}
	if len(usable) == 0 {
		return nil, err
	}
	return usable, nil
}
