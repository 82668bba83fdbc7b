// Package connlimit limits the connections of a server, so that a client without credentials cannot
// use up descriptors or memory.
//
// A connection is anonymous until Admit: until the server has identified a caller on it. A quarter
// of the slots is for anonymous connections, the rest for admitted ones, in total and for each
// peer. An anonymous connection beyond that replaces the oldest one of its own peer, or else of the
// peer with the most, so that anonymous connections compete only with each other. One without a
// call in time is closed.
//
// A peer is a user of this host, if the kernel knows the other end, else an address.
//
// Goroutines: timers. Lock: Limiter.mu, never held during a system call.
package connlimit

import (
	"container/list"
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Options are those of New; all are required.
type Options struct {
	Most        int           // connections in all, at least 4
	MostPerPeer int           // of one peer, at least 4
	FirstCall   time.Duration // that an anonymous connection may last without a call
	Log         *slog.Logger
}

// Limiter limits the connections of several listeners together.
type Limiter struct {
	o    Options
	said map[string]*repeated // by message

	mu     sync.Mutex
	peers  map[string]*peer
	counts Counts
}

// Counts are the numbers of open connections, and of anonymous ones that were closed.
type Counts struct {
	Anonymous, Admitted int
	Evicted             uint64 // replaced by a newer one
	Silent              uint64 // closed because no call came in time
}

// peer is the other end of connections.
type peer struct {
	name      string
	anonymous list.List // of *conn, the oldest first
	admitted  int
}

// New returns a Limiter without connections.
func New(o Options) *Limiter {
	return &Limiter{
		o: o, peers: map[string]*peer{},
		said: map[string]*repeated{saidEvicted: {}, saidSilent: {}, saidFull: {}, saidAccept: {}},
	}
}

// Counts returns the current numbers.
func (l *Limiter) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// conn is a connection with a slot.
type conn struct {
	net.Conn
	limiter *Limiter
	name    string // of its peer

	// Guarded by limiter.mu.
	peer      *peer         // nil once it has no slot
	anonymous *list.Element // nil: admitted
	timer     *time.Timer   // while it is anonymous
	calls     int           // running calls without credentials
}

// Addr is the address of a connection's peer. A server gets the connection from it.
type Addr struct {
	net.Addr
	conn *conn
}

// RemoteAddr returns an Addr.
func (c *conn) RemoteAddr() net.Addr { return Addr{c.Conn.RemoteAddr(), c} }

// CloseWrite closes the writing side if the connection supports that: net/http then waits until the
// client has read an answer before it closes the connection.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close closes the connection and frees its slot.
func (c *conn) Close() error {
	c.limiter.leave(c)
	return c.Conn.Close()
}

// enter gives a connection an anonymous slot, and closes the connection that it replaces.
func (l *Limiter) enter(inner net.Conn) net.Conn {
	name := peerOf(inner)
	c := &conn{Conn: inner, limiter: l, name: name}
	l.mu.Lock()
	p := l.peers[name]
	if p == nil {
		p = &peer{name: name}
		l.peers[name] = p
	}
	var out *conn
	switch {
	case p.anonymous.Len() >= anonymousSlots(l.o.MostPerPeer):
		out = p.oldest()
	case l.counts.Anonymous >= anonymousSlots(l.o.Most):
		out = l.largest().oldest()
	}
	from := ""
	if out != nil {
		from = out.peer.name
		l.counts.Evicted++
		l.leaveLocked(out)
		l.peers[name] = p // closing the other may have removed it
	}
	c.peer, c.anonymous = p, p.anonymous.PushBack(c)
	c.timer = time.AfterFunc(l.o.FirstCall, func() { l.expire(c) })
	l.counts.Anonymous++
	l.mu.Unlock()
	if out != nil {
		out.Conn.Close()
		l.say(saidEvicted, "peer", from)
	}
	return c
}

// anonymousSlots is the number of slots, of so many, for anonymous connections.
func anonymousSlots(places int) int { return max(1, places/4) }

func (p *peer) oldest() *conn {
	c, _ := p.anonymous.Front().Value.(*conn)
	return c
}

// largest returns the peer with the most anonymous connections.
func (l *Limiter) largest() *peer {
	var most *peer
	for _, p := range l.peers {
		if most == nil || p.anonymous.Len() > most.anonymous.Len() {
			most = p
		}
	}
	return most
}

func (l *Limiter) leave(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaveLocked(c)
}

func (l *Limiter) leaveLocked(c *conn) {
	p := c.peer
	if p == nil {
		return
	}
	c.peer = nil
	if c.anonymous != nil {
		c.timer.Stop()
		p.anonymous.Remove(c.anonymous)
		l.counts.Anonymous--
	} else {
		p.admitted--
		l.counts.Admitted--
	}
	if p.admitted == 0 && p.anonymous.Len() == 0 {
		delete(l.peers, p.name)
	}
}

// expire closes an anonymous connection without a call in time.
func (l *Limiter) expire(c *conn) {
	l.mu.Lock()
	late := c.peer != nil && c.anonymous != nil && c.calls == 0
	from := ""
	if late {
		from = c.peer.name
		l.counts.Silent++
		l.leaveLocked(c)
	}
	l.mu.Unlock()
	if late {
		c.Conn.Close()
		l.say(saidSilent, "peer", from)
	}
}

// Peer names the peer.
func (a Addr) Peer() string { return a.conn.name }

// Stay keeps an anonymous connection open during a call that needs no credentials, until leave is
// called; leave restarts the time for the next call.
func (a Addr) Stay() (leave func()) {
	l, c := a.conn.limiter, a.conn
	l.mu.Lock()
	defer l.mu.Unlock()
	c.calls++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		c.calls--
		if c.peer != nil && c.anonymous != nil {
			c.timer.Reset(l.o.FirstCall)
		}
	})
}

// Admit moves the connection from the anonymous slots to the others, once. Errors: Exhausted if
// those are taken.
func (a Addr) Admit() error {
	err := a.conn.limiter.admit(a.conn)
	if err != nil {
		a.conn.limiter.say(saidFull, "err", err)
	}
	return err
}

func (l *Limiter) admit(c *conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.peer == nil || c.anonymous == nil {
		return nil
	}
	if most := l.o.MostPerPeer - anonymousSlots(l.o.MostPerPeer); c.peer.admitted >= most {
		return full(c.peer.name, most)
	}
	if most := l.o.Most - anonymousSlots(l.o.Most); l.counts.Admitted >= most {
		return full("the server", most)
	}
	c.timer.Stop()
	c.peer.anonymous.Remove(c.anonymous)
	c.anonymous = nil
	c.peer.admitted++
	l.counts.Anonymous--
	l.counts.Admitted++
	return nil
}

func full(who string, most int) error {
	return errdefs.New(errdefs.Exhausted, "%s already has %w: use one for several calls, or try again later",
		who, &errdefs.Limit{Most: int64(most), Resource: "connections"})
}

// Log messages.
const (
	saidEvicted = "connections: too many without credentials, the oldest are closed"
	saidSilent  = "connections: closed for showing no credentials in time"
	saidFull    = "connections: a call was refused, the limit of connections is reached"
	saidAccept  = "connections: none could be accepted for now"
)

// sayEvery is the minimum time between two equal log messages, so that clients cannot fill the
// disk.
const sayEvery = 10 * time.Second

// repeated is a message that is logged at intervals.
type repeated struct {
	mu     sync.Mutex
	last   time.Time
	silent int // occurrences since that were not logged
}

// say logs a message, with the number of occurrences that were not logged.
func (l *Limiter) say(what string, args ...any) {
	r := l.said[what]
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if !r.last.IsZero() && now.Sub(r.last) < sayEvery {
		r.silent++
		return
	}
	l.o.Log.Log(context.Background(), slog.LevelWarn, what, append(args, "more", r.silent)...)
	r.last, r.silent = now, 0
}
