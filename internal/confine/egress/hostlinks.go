package egress

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
)

// maxAnswerHead bounds the header of an answer, in bytes.
const maxAnswerHead = 256 << 10

// hostLinks are the connections to a secret's host that serve one connection of a program.
type hostLinks struct {
	conn *conn
	own  chan struct{} // a token for the link that takes the place of the program's connection

	mu     sync.Mutex
	open   map[*hostLink]struct{}
	made   int // dials: the first is that for which the program took its turn
	closed bool
}

// newLinks returns where there are none yet. They are cut with the connection: a host that reads
// nothing would keep them.
func (c *conn) newLinks() *hostLinks {
	l := &hostLinks{conn: c, own: make(chan struct{}, 1), open: map[*hostLink]struct{}{}}
	context.AfterFunc(c.ctx, l.cut)
	return l
}

// transport sends requests over them. config may be nil where there is no TLS.
func (l *hostLinks) transport(config *tls.Config) *http.Transport {
	return &http.Transport{
		DialContext: l.dial, TLSClientConfig: config.Clone(), ForceAttemptHTTP2: true, DisableCompression: true,
		TLSHandshakeTimeout: headPatience, MaxResponseHeaderBytes: maxAnswerHead, MaxIdleConnsPerHost: 1,
	}
}

// hostLink is one of them, and counts what it carries.
type hostLink struct {
	net.Conn

	conn     *conn // for its reports
	links    *hostLinks
	leave    func() // gives its place among the connections at once back
	once     sync.Once
	sent     atomic.Int64
	received atomic.Int64
	requests atomic.Int64
}

// dial connects to a secret's host, whose address is checked as for every host. Errors: a refusal.
func (l *hostLinks) dial(ctx context.Context, _, address string) (net.Conn, error) {
	to, err := parseTarget(address)
	if err != nil {
		return nil, err
	}
	leave, err := l.enter(ctx)
	if err != nil {
		return nil, err
	}
	select {
	case l.conn.p.links <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
	c := &conn{p: l.conn.p, target: to, rule: l.conn.rule}
	c.ctx, c.cancel = l.conn.ctx, l.conn.cancel
	if err := c.dial(); err != nil {
		<-l.conn.p.links
		leave()
		return nil, err
	}
	link := &hostLink{Conn: c.up, conn: c, links: l, leave: leave}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		go link.Close()
		return nil, net.ErrClosed
	}
	l.open[link] = struct{}{}
	return link, nil
}

// roomPatience bounds how long a request waits for one before it to let its connection go.
const roomPatience = time.Second

// enter keeps the limits of the network for what is beyond one connection for that of the program,
// which has kept them. leave says that it has ended. Errors: a refusal.
func (l *hostLinks) enter(ctx context.Context) (leave func(), err error) {
	l.mu.Lock()
	l.made++
	isFirst := l.made == 1
	l.mu.Unlock()
	if !isFirst {
		if err := l.conn.p.meter.turn(ctx); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, roomPatience)
	defer cancel()
	for {
		select {
		case l.own <- struct{}{}:
			return l.leaveOwn, nil
		default:
		}
		freed, entered := l.conn.p.live.enterOther()
		if entered {
			return l.conn.p.live.leaveOther, nil
		}
		select {
		case l.own <- struct{}{}:
			return l.leaveOwn, nil
		case <-freed:
		case <-ctx.Done():
			return nil, l.conn.p.live.reasonFull()
		}
	}
}

func (l *hostLinks) leaveOwn() { <-l.own }

// parseTarget reads what a Transport dials: the name of a secret's host and its port.
func parseTarget(address string) (target, error) {
	if at, err := netip.ParseAddrPort(address); err == nil {
		return target{allowlist.Host(at.Addr().String()), at.Port()}, nil
	}
	r, err := allowlist.ParseRule(address)
	return target{r.Host, r.Port}, err
}

// close closes all.
func (l *hostLinks) close() {
	for _, link := range l.end() {
		link.Close()
	}
}

// cut has all fail. Where the connection may not go on, what they have not sent yet is dropped.
// Whoever uses them closes them then.
func (l *hostLinks) cut() {
	for _, link := range l.end() {
		if l.conn.cutReason() != "" {
			link.conn.up.reset()
			continue
		}
		link.conn.up.Close()
	}
}

// end has no other one open any more, and returns those that are.
func (l *hostLinks) end() []*hostLink {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return slices.Collect(maps.Keys(l.open))
}

func (h *hostLink) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	h.received.Add(int64(n))
	return n, err
}

func (h *hostLink) Write(p []byte) (int, error) {
	n, err := h.Conn.Write(p)
	h.sent.Add(int64(n))
	return n, err
}

// Close closes the connection and reports what it carried.
func (h *hostLink) Close() error {
	err := h.Conn.Close()
	h.once.Do(func() {
		h.links.mu.Lock()
		delete(h.links.open, h)
		h.links.mu.Unlock()
		<-h.conn.p.links
		h.leave()
		h.conn.requests = h.requests.Load()
		h.conn.closed(h.sent.Load(), h.received.Load())
	})
	return err
}

// countRequests counts the requests of each hostLink.
type countRequests struct{ http.RoundTripper }

func (c countRequests) RoundTrip(r *http.Request) (*http.Response, error) {
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		c := info.Conn
		if over, is := c.(*tls.Conn); is {
			c = over.NetConn()
		}
		if link, is := c.(*hostLink); is {
			link.requests.Add(1)
		}
	}}
	return c.RoundTripper.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
}
