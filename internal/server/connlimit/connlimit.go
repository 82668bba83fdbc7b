// Package connlimit bounds the connections of a server, so that a client that
// has shown no credentials cannot use up descriptors or memory.
//
// A connection is a stranger's until Admit: until the server has identified who
// makes a call on it. A quarter of the places is for anonymous connections, the rest for
// those who were admitted; in all, and for each peer. A stranger beyond that
// takes the place of the oldest stranger, of its own peer or else of the peer
// with the most, so that anonymous connections compete with one another only. One that makes
// no call in time is closed.
//
// A peer is a user of this host, where the kernel tells who has the other end,
// else an address. Who is admitted, the caller decides.
//
// Goroutines: timers. Lock: Limiter.mu, held for no system call.
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

// Options of New; all are needed.
type Options struct {
	Most        int           // connections in all, at least 4
	MostPerPeer int           // of one peer, at least 4
	FirstCall   time.Duration // that a stranger may stay without a call
	Log         *slog.Logger
}

// Limiter bounds the connections of several listeners together.
type Limiter struct {
	o    Options
	said map[string]*repeated // by what is logged

	mu     sync.Mutex
	peers  map[string]*peer
	counts Counts
}

// Counts are the connections there are, and how many anonymous connections were closed.
type Counts struct {
	Anonymous, Admitted int
	Evicted             uint64 // for a younger one
	Silent              uint64 // for making no call in time
}

// peer is who has connections.
type peer struct {
	name      string
	anonymous list.List // of *conn, the oldest first
	admitted  int
}

// New returns a Limiter of no connections.
func New(o Options) *Limiter {
	return &Limiter{
		o: o, peers: map[string]*peer{},
		said: map[string]*repeated{saidEvicted: {}, saidSilent: {}, saidFull: {}, saidAccept: {}},
	}
}

// Counts returns what holds now.
func (l *Limiter) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// conn is a connection with a place.
type conn struct {
	net.Conn
	limiter *Limiter
	name    string // of its peer

	// Guarded by limiter.mu.
	peer     *peer         // nil once it has no place
	anonymous *list.Element // nil: admitted
	timer    *time.Timer   // of a stranger
	calls    int           // that it stays for
}

// Addr is the address of a connection's peer, by which whoever serves it reaches
// the connection.
type Addr struct {
	net.Addr
	conn *conn
}

// RemoteAddr returns an Addr.
func (c *conn) RemoteAddr() net.Addr { return Addr{c.Conn.RemoteAddr(), c} }

// CloseWrite ends what is sent, where the connection can do that: net/http then
// waits for the client to read an answer before it closes the connection.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close gives the place back.
func (c *conn) Close() error {
	c.limiter.leave(c)
	return c.Conn.Close()
}

// enter gives a connection a stranger's place. Whoever has to make room for it is
// closed.
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
		l.peers[name] = p // of which that may have been the last
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

// anonymousSlots is how many of so many places are for anonymous connections.
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

// expire closes a stranger that has made no call in time.
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

// Peer names who has the connection.
func (a Addr) Peer() string { return a.conn.name }

// Stay keeps a stranger until leave is called, which gives it the time for one
// more call: for calls that are answered without credentials.
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

// Admit moves the connection out of the anonymous slots, once. Errors:
// Exhausted if the others are taken.
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
	return errdefs.New(errdefs.Exhausted, "%s has %w already: use one for several calls, or try again later",
		who, &errdefs.Limit{Most: int64(most), Resource: "connections"})
}

// What is logged.
const (
	saidEvicted = "connections: too many without credentials, the oldest are closed"
	saidSilent  = "connections: closed for showing no credentials in time"
	saidFull    = "connections: a call was refused, the limit of connections is reached"
	saidAccept  = "connections: none could be accepted for now"
)

// sayEvery is the least time between two log lines of a kind: those who cause them
// must not fill a disk.
const sayEvery = 10 * time.Second

// repeated is what is logged once in a while.
type repeated struct {
	mu     sync.Mutex
	last   time.Time
	silent int // not logged since
}

// say logs what, with how often it was not logged.
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
