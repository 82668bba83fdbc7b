package egress

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/forwardproxy"
)

// proxyRequests are the requests that a proxy got.
type proxyRequests struct {
	mu  sync.Mutex
	all []string
}

func (a *proxyRequests) add(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, text)
}

func (a *proxyRequests) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.all, "; ")
}

// proxyAt is a proxy that answers with the status that is for the target, and then echoes. Its
// answer and the first bytes of the target come at once.
func proxyAt(t *testing.T, status func(target string) int) (l net.Listener, got *proxyRequests) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got = &proxyRequests{}
	var working sync.WaitGroup
	working.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			working.Go(func() {
				defer c.Close()
				r := bufio.NewReader(c)
				q, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				got.add(q.Method + " " + q.Host + " " + q.Header.Get("Proxy-Authorization"))
				if code := status(q.Host); code != http.StatusOK {
					fmt.Fprintf(c, "HTTP/1.1 %d x\r\nContent-Length: 0\r\n\r\n", code)
					return
				}
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX: y\r\n\r\nhello ")
				_, _ = io.Copy(c, r)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		working.Wait()
	})
	return l, got
}

func always(status int) func(string) int { return func(string) int { return status } }

// startBehindProxy starts a process that reaches hosts by the proxy at l, which has a private
// address.
func startBehindProxy(t *testing.T, l net.Listener, no string, lookup func(name string) ([]netip.Addr, error)) *outside {
	t.Helper()
	return startProcess(t, l, func(p *process) {
		if err := p.setProxies(forwardproxy.Settings{HTTPS: "http://me:pass%40word@10.0.0.1:3128", No: no}, nil); err != nil {
			t.Error(err)
		}
		if lookup != nil {
			p.lookup = func(_ context.Context, name string) ([]netip.Addr, error) { return lookup(name) }
		}
	}, "a.example:1000,raw", "10.0.0.1:3128,raw")
}

// hello reads what the proxy's target says first.
func hello(c net.Conn) string {
	b := make([]byte, len("hello "))
	_, _ = io.ReadFull(c, b) // the comparison tells
	return string(b)
}

// says returns what a host says. A connection that is refused may be reset before it is used.
func (o *outside) says(h allowlist.Host) string {
	c, err := net.Dial("tcp", o.hosts[h].String())
	if err != nil {
		return ""
	}
	defer c.Close()
	b, _ := io.ReadAll(c)
	return string(b)
}

const asUser = " Basic bWU6cGFzc0B3b3Jk"

func TestHostsAreReachedByTheProxyAtTheirAddress(t *testing.T) {
	l, got := proxyAt(t, always(http.StatusOK))
	o := startBehindProxy(t, l, "", func(string) ([]netip.Addr, error) {
		return []netip.Addr{netip.AddrFrom16(public.As16())}, nil // as resolvers return one of IPv4
	})
	c := o.dial("a.example")
	if hello(c) != "hello " || !passes(c, 10) {
		t.Error("it does not pass")
	}
	if want := "CONNECT 93.184.216.34:1000" + asUser; got.String() != want {
		t.Errorf("the proxy got %s, want %s", got, want)
	}
	opened := o.await(func(r report) bool { return r.Opened != nil }).Opened
	if opened.Addr != public || opened.Proxy != "10.0.0.1:3128" {
		t.Errorf("reported %+v", opened)
	}
}

func TestAProxyThatWantsNamesGetsThem(t *testing.T) {
	l, got := proxyAt(t, func(target string) int {
		if strings.HasPrefix(target, "a.example") {
			return http.StatusOK
		}
		return http.StatusForbidden
	})
	o := startBehindProxy(t, l, "", nil)
	for range 2 {
		if hello(o.dial("a.example")) != "hello " {
			t.Error("it does not pass")
		}
	}
	if want := "CONNECT 93.184.216.34:1000" + asUser + strings.Repeat("; CONNECT a.example:1000"+asUser, 2); got.String() != want {
		t.Errorf("the proxy got %s, want %s", got, want)
	}
	if opened := o.await(func(r report) bool { return r.Opened != nil }).Opened; opened.Addr.IsValid() || opened.Proxy == "" {
		t.Errorf("reported %+v", opened)
	}
}

func TestANameThatOnlyTheProxyKnows(t *testing.T) {
	l, got := proxyAt(t, always(http.StatusOK))
	o := startBehindProxy(t, l, "", func(name string) ([]netip.Addr, error) {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	})
	if hello(o.dial("a.example")) != "hello " || got.String() != "CONNECT a.example:1000"+asUser {
		t.Errorf("the proxy got %s", got)
	}
}

func TestWhatAProxyIsNotAskedFor(t *testing.T) {
	l, got := proxyAt(t, always(http.StatusOK))
	private := func(string) ([]netip.Addr, error) { return addrs("10.1.2.3"), nil }
	refused := func(o *outside, h allowlist.Host, reason string) {
		t.Helper()
		if text := o.says(h); text != "" {
			t.Errorf("got %q", text)
		}
		o.awaitDenied(reason)
	}
	o := startBehindProxy(t, l, "", private)
	refused(o, "a.example", "not a public one")
	refused(o, "10.0.0.1", reasonProxy)
	o = startBehindProxy(t, l, ".example,10.0.0.1", func(string) ([]netip.Addr, error) { return addrs("10.1.2.3"), nil })
	refused(o, "a.example", "not a public one")
	refused(o, "10.0.0.1", reasonProxy)
	if got.String() != "" {
		t.Errorf("the proxy got %s", got)
	}
}

// A name of the rules may lead to the proxy.
func TestANameThatLeadsToTheProxyIsRefused(t *testing.T) {
	l, got := proxyAt(t, always(http.StatusOK))
	for _, no := range []string{"", "a.example"} {
		o := startProcess(t, l, func(p *process) {
			if err := p.setProxies(forwardproxy.Settings{HTTPS: "http://" + public.String() + ":1000", No: no}, nil); err != nil {
				t.Error(err)
			}
		}, "a.example:1000,raw")
		if text := o.says("a.example"); text != "" {
			t.Errorf("got %q", text)
		}
		o.awaitDenied(reasonProxy)
	}
	if got.String() != "" {
		t.Errorf("the proxy got %s", got)
	}
}

// A proxy's refusal says which proxy, and never with which credentials.
func TestAProxyThatRefuses(t *testing.T) {
	for status, text := range map[int]string{403: "403 Forbidden", 407: "407 Proxy Authentication Required: it wants other credentials", 503: "503 Service Unavailable"} {
		l, got := proxyAt(t, always(status))
		o := startBehindProxy(t, l, "", nil)
		if text := o.says("a.example"); text != "" {
			t.Errorf("got %q", text)
		}
		failed := o.await(func(r report) bool { return r.Opened != nil }).Opened
		if !strings.Contains(failed.Error, "the proxy 10.0.0.1:3128 answers "+text) || strings.Contains(failed.Error, "pass") {
			t.Errorf("%d: reported %s", status, failed.Error)
		}
		if times := strings.Count(got.String(), "CONNECT"); times != map[bool]int{true: 2, false: 1}[status == 403] {
			t.Errorf("%d: the proxy got %s", status, got)
		}
	}
}

func TestTheSupervisorKnowsTheProxy(t *testing.T) {
	e, c, _, _ := newSupervisor(t)
	var err error
	if e.proxies, err = forwardproxy.Parse(forwardproxy.Settings{HTTPS: "http://10.0.0.1:3128"}); err != nil {
		t.Fatal(err)
	}
	if err := e.opened(c, opened{1, Allowed{Host: "example.com", Port: 443, Proxy: "10.0.0.1:3128"}}); err != nil {
		t.Error(err)
	}
	if err := e.opened(c, opened{2, Allowed{Host: "example.com", Port: 443, Proxy: "evil.example:3128"}}); err == nil {
		t.Error("it believes in another proxy")
	}
}
