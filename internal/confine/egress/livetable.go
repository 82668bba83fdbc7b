package egress

import (
	"context"
	"net"
	"net/netip"
	"sync"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
)

// entry is where programs inside connect to a target. Localhost has an address of each family.
type entry struct {
	target
	inside netip.Addr
}

// liveTable has the rules as they are now, and what goes with them: the listeners, and the
// connections that are open. Its zero value allows nothing.
type liveTable struct {
	mu        sync.Mutex
	rules     []allowlist.Rule
	listeners map[entry]net.Listener
	conns     map[*conn]struct{}
}

// set takes other rules, closes the listeners that none needs, and cuts the connections that none
// allows any more.
func (t *liveTable) set(rules []allowlist.Rule) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rules = rules
	for at, l := range t.listeners {
		if _, allowed := allowlist.Find(rules, at.host, at.port); !allowed {
			l.Close()
			delete(t.listeners, at)
		}
	}
	for c := range t.conns {
		if rule, allowed := allowlist.Find(rules, c.target.host, c.target.port); !allowed || !rule.Keeps(c.rule) {
			c.cut()
		}
	}
}

// keep takes a listener, unless no rule needs it or there is one.
func (t *liveTable) keep(at entry, l net.Listener) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, allowed := allowlist.Find(t.rules, at.host, at.port)
	if !allowed || t.listeners[at] != nil {
		return false
	}
	if t.listeners == nil {
		t.listeners = map[entry]net.Listener{}
	}
	t.listeners[at] = l
	return true
}

// enter takes a connection to its target, with the rule that allows it.
func (t *liveTable) enter(c *conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	rule, allowed := allowlist.Find(t.rules, c.target.host, c.target.port)
	if !allowed {
		return false
	}
	if t.conns == nil {
		t.conns = map[*conn]struct{}{}
	}
	c.rule = rule
	t.conns[c] = struct{}{}
	return true
}

func (t *liveTable) leave(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
}

// covers reports whether rules are about a host.
func (t *liveTable) covers(h allowlist.Host) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(allowlist.Ports(t.rules, h)) > 0
}

// intercepts reports whether rules open connections to a host.
func (t *liveTable) intercepts(h allowlist.Host) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return allowlist.Intercepts(t.rules, h)
}

// ends are the two ends of a connection, which it may lose at any moment.
type ends struct {
	ctx    context.Context // ends when the connection is cut
	cancel context.CancelFunc

	mu    sync.Mutex
	isCut bool
	down  *net.TCPConn
	up    *net.TCPConn // nil until it is connected
}

// cut ends a connection whose rule is gone.
func (e *ends) cut() {
	e.cancel()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.isCut = true
	for _, c := range []*net.TCPConn{e.down, e.up} {
		if c != nil {
			_ = c.SetLinger(0) // both sides learn at once
			c.Close()
		}
	}
}

// connected takes the far end. It reports false, and closes it, if the connection was cut.
func (e *ends) connected(up *net.TCPConn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isCut {
		up.Close()
		return false
	}
	e.up = up
	return true
}

func (e *ends) wasCut() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.isCut
}
