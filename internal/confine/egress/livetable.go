package egress

import (
	"context"
	"net"
	"net/netip"
	"sync"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/quota"
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
	most      int // of connections at once; 0: any number
	rules     []allowlist.Rule
	listeners map[entry]net.Listener
	conns     map[*conn]struct{}
	others    int           // connections to hosts, beyond one for each of conns
	freed     chan struct{} // closed when there may be room; nil: nobody waits
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
			c.cut(reasonRevoked)
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

// enter takes a connection to its target, with the rule that allows it. Errors: a refusal.
func (t *liveTable) enter(c *conn) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	rule, allowed := allowlist.Find(t.rules, c.target.host, c.target.port)
	switch {
	case !allowed:
		return refusal{NotAllowed}
	case t.isFullLocked():
		return t.reasonFull()
	}
	if t.conns == nil {
		t.conns = map[*conn]struct{}{}
	}
	c.rule = rule
	t.conns[c] = struct{}{}
	return nil
}

func (t *liveTable) isFullLocked() bool { return t.most > 0 && len(t.conns)+t.others >= t.most }

func (t *liveTable) reasonFull() refusal {
	return refusal{reasonReached(quota.Limit{Name: quota.Connections, Max: int64(t.most)})}
}

func (t *liveTable) leave(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
	t.freeLocked()
}

// enterOther takes one more connection to a host for a program's connection. If there is no room,
// freed is closed when there may be.
func (t *liveTable) enterOther() (freed chan struct{}, entered bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isFullLocked() {
		t.others++
		return nil, true
	}
	if t.freed == nil {
		t.freed = make(chan struct{})
	}
	return t.freed, false
}

func (t *liveTable) leaveOther() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.others--
	t.freeLocked()
}

func (t *liveTable) freeLocked() {
	if t.freed != nil {
		close(t.freed)
		t.freed = nil
	}
}

// cut ends all connections.
func (t *liveTable) cut(reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.conns {
		c.cut(reason)
	}
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

	mu     sync.Mutex
	whyCut string // "" until it is cut
	down   *net.TCPConn
	up     *link // nil until it is connected
}

// cut ends a connection that may not go on.
func (e *ends) cut(reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.whyCut == "" {
		e.whyCut = reason
	}
	e.cancel() // who notices that knows why
	if e.down != nil {
		_ = e.down.SetLinger(0) // both sides learn at once
		e.down.Close()
	}
	if e.up != nil {
		e.up.reset()
	}
}

// connected takes the far end. It reports false, and closes it, if the connection was cut.
func (e *ends) connected(up *link) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.whyCut != "" {
		up.Close()
		return false
	}
	e.up = up
	return true
}

// cutReason returns why the connection was cut, "" if it was not.
func (e *ends) cutReason() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.whyCut
}
