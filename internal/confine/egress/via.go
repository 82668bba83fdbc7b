package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"strconv"

	"github.com/agentfense/agentfense/internal/confine/egress/address"
	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/forwardproxy"
)

const reasonProxy = "this is the proxy by which agentfense reaches hosts; a sandbox does not reach it"

// dialVia connects to a target by a proxy: to a checked address or, where the proxy wants names or
// this host cannot look the name up, to the name, which the proxy looks up. Errors: a refusal, too.
func (p *process) dialVia(ctx context.Context, t target, by *forwardproxy.Proxy) (*link, error) {
	if p.isProxyName(t) {
		return nil, refusal{reasonProxy}
	}
	addrs, err := p.addresses(ctx, t.host)
	lookup := &net.DNSError{}
	switch {
	case errors.As(err, &lookup):
		return p.connectVia(ctx, t, netip.Addr{}, by)
	case err != nil:
		return nil, err
	}
	addr := addrs[0].Unmap() // proxies do not expect an IPv4 address in IPv6
	if err := p.checkNoProxy(ctx, addr, t.port); err != nil {
		return nil, err
	}
	_, notNamed := netip.ParseAddr(string(t.host))
	if notNamed != nil && p.wantsNames.Load() {
		return p.connectVia(ctx, t, netip.Addr{}, by)
	}
	l, err := p.connectVia(ctx, t, addr, by)
	refused, is := errors.AsType[forwardproxy.Refused](err)
	if !is || !refused.WantsName() || notNamed == nil {
		return l, err
	}
	l, err = p.connectVia(ctx, t, netip.Addr{}, by)
	if err == nil {
		p.wantsNames.Store(true)
	}
	return l, err
}

// connectVia has a proxy connect to an address of the target or, if addr is not valid, to its name.
func (p *process) connectVia(ctx context.Context, t target, addr netip.Addr, by *forwardproxy.Proxy) (*link, error) {
	at := net.JoinHostPort(string(t.host), strconv.Itoa(int(t.port)))
	if addr.IsValid() {
		at = netip.AddrPortFrom(addr, t.port).String()
	}
	proxies, err := p.proxyAddresses(ctx, by)
	if err != nil {
		return nil, err
	}
	proxies = address.Alternate(proxies)
	c, err := p.connectFirst(ctx, proxies[:min(len(proxies), maxAttempts)], by.Port)
	if err != nil {
		return nil, err
	}
	tcp := c.(*net.TCPConn)
	over, err := p.connectBy(ctx, by, tcp, at)
	if err != nil {
		tcp.Close()
		return nil, err
	}
	return &link{Conn: over, tcp: tcp, to: addr, proxy: by.Place()}, nil
}

// connectBy asks a proxy for a connection, over TLS if the proxy speaks that.
func (p *process) connectBy(ctx context.Context, by *forwardproxy.Proxy, c net.Conn, at string) (net.Conn, error) {
	var roots *x509.CertPool
	if by.Secure {
		var err error
		if roots, err = p.proxyRoots(); err != nil {
			return nil, err
		}
	}
	return by.Connect(ctx, c, at, roots)
}

// proxyAddresses are those of a proxy, which may be any: the user has chosen it.
func (p *process) proxyAddresses(ctx context.Context, by *forwardproxy.Proxy) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(by.Host); err == nil {
		return []netip.Addr{addr}, nil
	}
	addrs, err := p.lookup(ctx, by.Host)
	if err != nil || len(addrs) == 0 {
		return nil, errors.Join(errors.New("look up the proxy "+by.Place()), err)
	}
	return addrs, nil
}

// isProxyName reports whether a target is a proxy by its name.
func (p *process) isProxyName(t target) bool {
	for _, by := range p.proxies.All() {
		if by.Port == t.port && by.Host == string(t.host) {
			return true
		}
	}
	return false
}

// checkNoProxy refuses an address at which a proxy is. Errors: a refusal.
func (p *process) checkNoProxy(ctx context.Context, addr netip.Addr, port uint16) error {
	for _, by := range p.proxies.All() {
		if by.Port != port {
			continue
		}
		addrs, err := p.proxyAddresses(ctx, by)
		if err != nil {
			return err
		}
		for _, a := range addrs {
			if a.Unmap() == addr.Unmap() || a.Unmap().IsLoopback() && addr.Unmap().IsLoopback() {
				return refusal{reasonProxy}
			}
		}
	}
	return nil
}

// dialDirectly connects to the target without a proxy.
func (p *process) dialDirectly(ctx context.Context, t target) (*link, error) {
	if p.isProxyName(t) {
		return nil, refusal{reasonProxy}
	}
	if t.host == allowlist.Localhost {
		if err := p.checkNoProxy(ctx, netip.IPv6Loopback(), t.port); err != nil {
			return nil, err
		}
		c, err := p.dialLocalhost(ctx, t.port)
		return linkOf(c), err
	}
	addrs, err := p.addresses(ctx, t.host)
	if err != nil {
		return nil, err
	}
	for _, addr := range addrs {
		if err := p.checkNoProxy(ctx, addr, t.port); err != nil {
			return nil, err
		}
	}
	addrs = address.Alternate(addrs)
	c, err := p.connectFirst(ctx, addrs[:min(len(addrs), maxAttempts)], t.port)
	if err != nil {
		p.names.Forget(asked(t.host))
		return nil, err
	}
	return linkOf(c.(*net.TCPConn)), nil
}

// linkOf is a connection to the target itself.
func linkOf(c *net.TCPConn) *link {
	if c == nil {
		return nil
	}
	return &link{Conn: c, tcp: c, to: c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()}
}
