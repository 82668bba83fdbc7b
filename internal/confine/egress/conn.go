package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/publish"
	"github.com/agentfense/agentfense/internal/confine/egress/sniff"
)

// Ports of protocols.
const httpPort = 80

// headPatience bounds how long one side takes to say what it has to say first: a ClientHello, the
// answer to it, or the head of a request.
const headPatience = 30 * time.Second

// conn is a connection of a program inside.
type conn struct {
	p      *process
	target target
	rule   allowlist.Rule
	ends   // down is the program's, up the target's
	id     uint64

	requests int64 // of HTTP that were sent on
}

const (
	reasonRevoked = "no longer allowed"
	reasonSilent  = "it sent nothing: only a rule with raw allows a protocol in which the server speaks first"
)

// A refusal is an error that says why a connection is not let through.
type refusal struct{ reason string }

func (e refusal) Error() string { return e.reason }

// unreachable is the error of a connection that could not be made, which was reported.
type unreachable struct{ error }

// serve relays a connection if the rules allow it, and if it is for the host that its rule names.
func (p *process) serve(down *net.TCPConn, t target) {
	c := &conn{p: p, target: t, ends: ends{down: down}}
	c.ctx, c.cancel = context.WithCancel(p.ctx)
	defer c.cancel()
	err := p.meter.turn(c.ctx)
	if err == nil {
		err = p.live.enter(c)
	}
	if err == nil {
		err = c.run()
		p.live.leave(c)
	}
	if c.up != nil {
		c.up.Close()
	}
	if reason := c.cutReason(); reason != "" {
		err = refusal{reason}
	}
	if r, is := errors.AsType[refusal](err); is {
		p.denials.note(string(t.host), t.port, r.reason, 1)
	}
	if err != nil {
		_ = down.SetLinger(0) // a reset tells of a failure
	}
}

func (c *conn) run() error {
	if proxy, config, is := c.p.secrets.at(c.target.host); is {
		return c.runSecret(proxy, config)
	}
	if reason := c.p.secrets.refuses(c.target, c.rule); reason != "" {
		return refusal{reason}
	}
	if c.rule.Raw {
		if err := c.dial(); err != nil {
			return err
		}
		return c.relay(0, 0)
	}
	if err := c.down.SetDeadline(time.Now().Add(c.p.patience)); err != nil {
		return err
	}
	first := make([]byte, 1)
	if _, err := io.ReadFull(c.down, first); errors.Is(err, os.ErrDeadlineExceeded) {
		return refusal{reasonSilent}
	} else if err != nil {
		return err // it has gone
	}
	said := io.MultiReader(bytes.NewReader(first), c.down)
	switch {
	case first[0] == sniff.RecordHandshake:
		return c.runTLS(said)
	case c.target.port == httpPort:
		return c.runHTTP(said)
	}
	return refusal{"neither TLS nor, on port 80, HTTP: only a rule with raw allows that"}
}

// dial connects to the target and reports that.
func (c *conn) dial() error {
	up, err := c.p.dial(c.ctx, c.target)
	if err == nil && !c.connected(up) {
		err = refusal{c.cutReason()}
	}
	if errors.As(err, &refusal{}) {
		return err
	}
	c.id = c.p.next.Add(1)
	o := opened{c.id, Allowed{Host: string(c.target.host), Port: c.target.port, Rule: c.rule.String()}}
	if err != nil {
		o.Error = dialText(err)
	} else {
		o.Addr, o.Proxy = up.to, up.proxy
	}
	// The supervisor knows of a connection before it carries anything, even if this process ends
	// then. Another goroutine to report it would cost time.
	if err := c.p.wire.send(report{Opened: &o}); err != nil {
		return unreachable{err}
	}
	if err != nil {
		c.closed(0, 0)
		return unreachable{err}
	}
	return nil
}

// maxErrorText bounds the text of an error in bytes.
const maxErrorText = 300

func dialText(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	return text[:min(len(text), maxErrorText)]
}

func (c *conn) closed(sent, received int64) {
	c.p.closings.note(closed{c.id, sent, received, c.requests})
}

// runTLS lets a TLS connection through whose server name is the target's. The program gets an
// alert else.
func (c *conn) runTLS(said io.Reader) error {
	name, hello, err := sniff.ReadClientHello(said)
	if err == nil {
		err = c.checkServerName(name)
	}
	if err != nil {
		return c.refuseTLS(err)
	}
	if c.rule.Intercept {
		return c.openTLS(hello)
	}
	if err := c.dial(); err != nil {
		return c.refuseTLS(err)
	}
	if err := c.up.SetDeadline(time.Now().Add(c.p.patience)); err != nil {
		return err
	}
	sent, received, err := c.shakeHands(hello)
	if err == nil {
		err = errors.Join(c.down.SetDeadline(time.Time{}), c.up.SetDeadline(time.Time{}))
	}
	if err != nil {
		c.closed(sent, received)
		return err
	}
	return c.relay(sent, received)
}

// shakeHands passes the first messages of the two sides, until the target has what it decides by
// where the connection leads: after a second hello if it asks for one.
func (c *conn) shakeHands(hello []byte) (sent, received int64, err error) {
	n, err := c.up.Write(hello)
	if sent = int64(n); err != nil {
		return sent, 0, err
	}
	retry, answer, err := sniff.ReadServerHello(c.up)
	if err != nil {
		return sent, 0, err
	}
	n, err = c.down.Write(answer)
	if received = int64(n); err != nil || !retry {
		return sent, received, err
	}
	name, second, err := sniff.ReadSecondHello(c.down)
	if err == nil {
		err = c.checkServerName(name)
	}
	if err != nil {
		return sent, received, c.refuseTLS(err)
	}
	n, err = c.up.Write(second)
	return sent + int64(n), received, err
}

// checkServerName refuses a server name that is not the target's. An address has none.
func (c *conn) checkServerName(name string) error {
	if _, err := netip.ParseAddr(string(c.target.host)); err == nil {
		if name != "" {
			return fmt.Errorf("TLS names the server %q, and the rule names an address", clip(name))
		}
		return nil
	}
	if name == "" {
		return errors.New("TLS without a server name")
	}
	if host, err := allowlist.ParseName(name); err != nil || host != c.target.host {
		return fmt.Errorf("TLS names another server: %q", clip(name))
	}
	return nil
}

// accessDenied is a fatal TLS alert (RFC 8446, 6.2).
var accessDenied = []byte{21, 3, 3, 0, 2, 2, 49}

// refuseTLS tells the program that it is refused, unless it was the one that went away, or the
// target was.
func (c *conn) refuseTLS(err error) error {
	if isGone(err) {
		return err
	}
	_, _ = c.down.Write(accessDenied) // the refusal is what counts
	c.drain()
	return refusalOf(err)
}

// refusalOf is the refusal of what a program said, or did not say in time.
func refusalOf(err error) refusal {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return refusal{"it did not say in time where it goes"}
	}
	return refusal{err.Error()}
}

// isGone reports whether there is nobody to talk to: the other side has closed the connection,
// or it could not be made.
func isGone(err error) bool {
	var failure *net.OpError
	return errors.As(err, &unreachable{}) || errors.Is(err, io.EOF) || errors.As(err, &failure) && !failure.Timeout()
}

// drain lets the program read what was sent last, which a reset would take from it.
func (c *conn) drain() {
	if c.down.CloseWrite() == nil && c.down.SetReadDeadline(time.Now().Add(drainPatience)) == nil {
		_, _ = io.CopyN(io.Discard, c.down, maxDrain)
	}
}

const (
	drainPatience = time.Second
	maxDrain      = 1 << 20
)

// runHTTP lets requests through whose host is the target's.
func (c *conn) runHTTP(first io.Reader) error {
	if c.rule.Intercept {
		return c.serveRequests(said{c.down, first}, false)
	}
	r := bufio.NewReader(first)
	q, err := c.nextRequest(r)
	if err == nil {
		err = c.dial()
	}
	if err != nil {
		return c.refuseHTTP(err)
	}
	done := make(chan int64, 1)
	go func() {
		n, _ := io.Copy(c.down, c.up) // how it ends is the requests' end, too
		c.down.Close()
		done <- n
	}()
	var sent int64
	for err == nil {
		var n int64
		if n, err = c.forward(q, r); err == nil {
			q, err = c.nextRequest(r)
		}
		sent += n
	}
	if errors.Is(err, io.EOF) { // no more requests; answers may still come
		err = c.up.CloseWrite()
	}
	if err != nil {
		c.up.Close()
	}
	c.closed(sent, <-done)
	if err == nil || isGone(err) {
		return nil
	}
	return refusalOf(err)
}

// forward sends a request on. From then on the two take the time that they need.
func (c *conn) forward(q *sniff.Request, r *bufio.Reader) (int64, error) {
	if err := c.down.SetDeadline(time.Time{}); err != nil {
		return 0, err
	}
	n, err := c.up.Write(q.Raw)
	if err != nil {
		return int64(n), err
	}
	c.requests++
	body, err := q.CopyBody(c.up, r)
	return int64(n) + body, err
}

// nextRequest reads the head of a request, which may come late but not slowly, and checks its
// host.
func (c *conn) nextRequest(r *bufio.Reader) (*sniff.Request, error) {
	if _, err := r.Peek(1); err != nil {
		return nil, err
	}
	if err := c.down.SetReadDeadline(time.Now().Add(c.p.patience)); err != nil {
		return nil, err
	}
	q, err := sniff.ReadRequest(r)
	if err != nil {
		return nil, err
	}
	if err := c.checkHosts(q); err != nil {
		return nil, err
	}
	if q.WebSocket {
		return nil, refusal{"change of protocol (upgrade)"}
	}
	if reason := c.p.secrets.reasonPlaceholder(string(q.Raw), ""); reason != "" {
		return nil, refusal{reason}
	}
	return q, nil
}

// isTarget reports whether HOST[:PORT] is the target.
func (c *conn) isTarget(text string) bool {
	host, port, given := text, "", false
	if i := strings.LastIndexByte(text, ':'); i >= 0 && !strings.HasSuffix(text, "]") {
		host, port, given = text[:i], text[i+1:], true
	}
	if given && port != fmt.Sprint(c.target.port) {
		return false
	}
	if literal, is := strings.CutPrefix(host, "["); is {
		addr, err := allowlist.ParseAddr(strings.TrimSuffix(literal, "]"))
		return err == nil && addr.Is6() && allowlist.Host(addr.String()) == c.target.host
	}
	if addr, err := allowlist.ParseAddr(host); err == nil {
		return addr.Is4() && allowlist.Host(addr.String()) == c.target.host
	}
	name, err := allowlist.ParseName(host)
	return err == nil && name == c.target.host
}

// refuseHTTP tells the program why its first request is refused.
func (c *conn) refuseHTTP(err error) error {
	if isGone(err) {
		return err
	}
	r := refusalOf(err)
	text := "agentfense: " + r.reason + "\n"
	_, _ = fmt.Fprintf(c.down, "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(text), text)
	c.drain()
	return r
}

// clip bounds a name that a program sent.
func clip(name string) string { return name[:min(len(name), maxClip)] }

const maxClip = 100

// relay copies in both directions until both have ended, by splice(2) where the kernel can. So
// many bytes were sent and received before.
func (c *conn) relay(sent, received int64) error {
	var up publish.HalfConn = c.up
	if plain := c.up.plain(); plain != nil {
		up = plain
	}
	done := make(chan int64, 1)
	go func() { done <- publish.Pass(up, c.down) }()
	received += publish.Pass(c.down, up)
	c.closed(sent+<-done, received)
	return nil
}
