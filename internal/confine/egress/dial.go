package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/agentfense/agentfense/internal/confine/egress/address"
	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
)

const (
	dialPatience    = 30 * time.Second
	attemptPatience = 10 * time.Second // to one of a host's addresses
	// attemptDelay is how long an attempt has to itself ("Connection Attempt Delay", RFC 8305, 5).
	attemptDelay = 250 * time.Millisecond
	// maxAttempts bounds the addresses of a host that are tried: its owner may give it any number.
	maxAttempts = 8
)

// target is what a program inside connects to.
type target struct {
	host allowlist.Host
	port uint16
}

// dial connects to the target. A name's addresses are checked each time; an address that a rule
// names is checked when the rule is read, and for being another host's here. Errors: a refusal, if
// no address may be used.
func (p *process) dial(ctx context.Context, t target) (*link, error) {
	dialing, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	l, err := p.dialAny(dialing, t)
	if err != nil {
		return nil, err
	}
	l.meter, l.ctx = &p.meter, ctx
	return l, nil
}

// dialAny dials as the environment of the caller says. What is local is never reached by a proxy.
func (p *process) dialAny(ctx context.Context, t target) (*link, error) {
	if t.host != allowlist.Localhost {
		if by := p.proxies.For(string(t.host), t.port); by != nil {
			return p.dialVia(ctx, t, by)
		}
	}
	return p.dialDirectly(ctx, t)
}

// connectFirst returns the first connection to one of the addresses. They are tried one after the
// other, the next when the one before has failed or takes long: many hosts have an IPv6 address
// and no IPv6 network.
func (p *process) connectFirst(ctx context.Context, addrs []netip.Addr, port uint16) (net.Conn, error) {
	if len(addrs) == 1 { // most hosts; another goroutine would cost time
		ctx, cancel := context.WithTimeout(ctx, attemptPatience)
		defer cancel()
		return p.connect(ctx, "tcp", netip.AddrPortFrom(addrs[0], port).String())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type attempt struct {
		conn net.Conn
		err  error
	}
	ended := make(chan attempt, len(addrs))
	var errs []error
	for tried := 0; len(errs) < len(addrs); {
		var delay <-chan time.Time
		if tried < len(addrs) {
			addr := netip.AddrPortFrom(addrs[tried], port).String()
			p.working.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, attemptPatience)
				defer cancel()
				c, err := p.connect(ctx, "tcp", addr)
				ended <- attempt{c, err}
			})
			tried++
			delay = time.After(attemptDelay)
		}
		select {
		case a := <-ended:
			if a.err != nil {
				errs = append(errs, a.err)
				continue
			}
			late := tried - len(errs) - 1
			p.working.Go(func() {
				for range late {
					if a := <-ended; a.err == nil {
						a.conn.Close()
					}
				}
			})
			return a.conn, nil
		case <-delay:
		}
	}
	return nil, errors.Join(errs...)
}

// asked is the name that is looked up for a host. With the dot no search domain is tried.
func asked(h allowlist.Host) string { return string(h) + "." }

// addresses returns those of the host's addresses that may be used.
func (p *process) addresses(ctx context.Context, h allowlist.Host) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(string(h)); err == nil {
		if err := address.CheckRoute(addr); err != nil {
			return nil, refusal{err.Error()}
		}
		return []netip.Addr{addr}, nil
	}
	all, err := p.lookup(ctx, asked(h))
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
