package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/question"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTLSToTheNamedHostPasses(t *testing.T) {
	for name, tt := range map[string]struct {
		server func(*tls.Config)
		client func(*tls.Config)
	}{
		"TLS 1.3": {nil, nil},
		"TLS 1.2": {func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, nil},
		"a server that asks for a second hello": {
			func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP521} },
			func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.X25519, tls.CurveP521} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := startProcess(t, echo(t, overTLS(t, tt.server)), nil, "example.com")
			config := client("EXAMPLE.com")
			if tt.client != nil {
				tt.client(config)
			}
			c := tls.Client(o.dial("example.com"), config)
			if err := exchange(t, c, "hello"); err != nil {
				t.Fatal(err)
			}
			opened := o.await(func(r report) bool { return r.Opened != nil }).Opened
			if opened.Host != "example.com" || opened.Port != 443 || opened.Rule != "example.com:443" {
				t.Errorf("reported %+v", opened)
			}
			c.Close()
			closed := o.await(func(r report) bool { return r.Closed != nil }).Closed[0]
			if closed.ID != opened.ID || closed.Sent < 200 || closed.Received < 200 {
				t.Errorf("reported %+v of %+v", closed, opened)
			}
		})
	}
}

func TestWhatIsNotForTheHostIsRefused(t *testing.T) {
	dialled := func(p *process) {
		p.connect = func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("it was dialled")
		}
	}
	for name, tt := range map[string]struct {
		host   allowlist.Host
		said   string
		tls    *tls.Config // in place of said
		reason string
	}{
		"another server name":     {host: "example.com", tls: client("evil.net"), reason: "names another server"},
		"a name below":            {host: "example.com", tls: client("a.example.com"), reason: "names another server"},
		"no server name":          {host: "example.com", tls: client(""), reason: "without a server name"},
		"a name for an address":   {host: "93.184.216.35", tls: client("evil.net"), reason: "the rule names an address"},
		"another protocol":        {host: "example.com", said: "SSH-2.0-x\r\n", reason: "neither TLS nor"},
		"HTTP at the port of TLS": {host: "example.com", said: "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n", reason: "neither TLS nor"},
		"another Host":            {host: "plain.example.com", said: "GET / HTTP/1.1\r\nHost: evil.net\r\n\r\n", reason: "names another host"},
		"another port":            {host: "plain.example.com", said: "GET / HTTP/1.1\r\nHost: plain.example.com:8080\r\n\r\n", reason: "names another host"},
		"another URL":             {host: "plain.example.com", said: "GET http://evil.net/ HTTP/1.1\r\nHost: plain.example.com\r\n\r\n", reason: "names another host"},
		"an address as Host":      {host: "plain.example.com", said: "GET / HTTP/1.1\r\nHost: 93.184.216.34\r\n\r\n", reason: "names another host"},
		"a tunnel":                {host: "plain.example.com", said: "CONNECT evil.net:443 HTTP/1.1\r\nHost: plain.example.com\r\n\r\n", reason: "CONNECT"},
	} {
		t.Run(name, func(t *testing.T) {
			o := startProcess(t, echo(t, plain), dialled, "example.com", "plain.example.com:80", "93.184.216.35")
			c := o.dial(tt.host)
			if tt.tls != nil {
				if err := tls.Client(c, tt.tls).Handshake(); err == nil || !strings.Contains(err.Error(), "access denied") {
					t.Errorf("handshake: %v, want an alert", err)
				}
			} else if _, err := io.WriteString(c, tt.said); err != nil {
				t.Fatal(err)
			} else if got, _ := io.ReadAll(c); tt.host == "plain.example.com" && !strings.Contains(string(got), "403 Forbidden") {
				t.Errorf("got %q, want 403", got)
			}
			c.Close()
			o.awaitDenied(tt.reason)
		})
	}
}

// A server would take a second hello with another name for where the connection leads.
func TestSecondHelloNamesTheHostToo(t *testing.T) {
	server := echo(t, overTLS(t, func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP521} }))
	o := startProcess(t, server, nil, "example.com")
	config := client("example.com")
	config.CurvePreferences = []tls.CurveID{tls.X25519, tls.CurveP521}
	swap := &swapping{Conn: o.dial("example.com"), from: []byte("example.com"), to: []byte("example.net")}
	if err := tls.Client(swap, config).Handshake(); err == nil {
		t.Error("the second hello passed")
	}
	o.awaitDenied("names another server")
}

// swapping changes a text in all but the first of what is written.
type swapping struct {
	net.Conn
	from, to []byte
	writes   int
}

func (s *swapping) Write(b []byte) (int, error) {
	if s.writes++; s.writes > 1 {
		b = bytes.ReplaceAll(b, s.from, s.to)
	}
	return s.Conn.Write(b)
}

func TestEachRequestOfAConnectionIsChecked(t *testing.T) {
	o := startProcess(t, echo(t, plain), nil, "example.com:80")
	c := o.dial("example.com")
	r := bufio.NewReader(c)
	const first = "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 3\r\n\r\nabc"
	for range 2 {
		if err := exchange(t, readFrom{c, r}, first); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: evil.net\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if rest, _ := io.ReadAll(r); strings.Contains(string(rest), "evil") {
		t.Errorf("it was sent on: %q", rest)
	}
	o.awaitDenied("names another host")
}

// The time to say where a connection goes is not that of an answer.
func TestAnAnswerMayComeLate(t *testing.T) {
	const patience = time.Second
	late := echo(t, func(c net.Conn) net.Conn {
		first := make([]byte, 1)
		_, _ = io.ReadFull(c, first) // the test fails if it does not come
		<-time.After(patience)
		return readFrom{c, io.MultiReader(bytes.NewReader(first), c)}
	})
	o := startProcess(t, late, func(p *process) { p.patience = patience }, "example.com:80")
	if err := exchange(t, o.dial("example.com"), "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"); err != nil {
		t.Error(err)
	}
}

// Whoever does not say in time where a connection goes is refused, which is recorded: also a
// program that waits for the server to speak first.
func TestWhatIsNotSaidInTimeIsRefused(t *testing.T) {
	const first = "GET / HTTP/1.1\r\nHost: plain.example.com\r\n\r\n"
	for name, tt := range map[string]struct {
		host         allowlist.Host
		said, reason string
	}{
		"nothing":                   {"example.com", "", reasonSilent},
		"a part of a hello":         {"example.com", "\x16\x03\x01\x00", "did not say in time"},
		"a part of a head":          {"plain.example.com", "GET / HTTP/1.1\r\nHost: plain.ex", "did not say in time"},
		"a part of the second head": {"plain.example.com", first + "GET / HT", "did not say in time"},
	} {
		t.Run(name, func(t *testing.T) {
			o := startProcess(t, echo(t, plain), func(p *process) { p.patience = 100 * time.Millisecond }, "example.com", "plain.example.com:80")
			c := o.dial(tt.host)
			if _, err := io.WriteString(c, tt.said); err != nil {
				t.Fatal(err)
			}
			if rest, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the connection stays open: %q", rest)
			}
			c.Close()
			o.awaitDenied(tt.reason)
		})
	}
}

// There may be more listeners than connections at once.
func TestListenersThatWaitTakeNoConnectionsPlace(t *testing.T) {
	o := startProcess(t, echo(t, plain), func(p *process) { p.conns = make(chan struct{}, 2) },
		"a.example.com:22,raw", "b.example.com:22,raw", "c.example.com:22,raw")
	for _, h := range []allowlist.Host{"a.example.com", "b.example.com", "c.example.com"} {
		c := o.dial(h)
		if err := exchange(t, c, "x"); err != nil {
			t.Errorf("%s: %v", h, err)
		}
		c.Close()
	}
}

type readFrom struct {
	net.Conn
	r io.Reader
}

func (r readFrom) Read(b []byte) (int, error) { return r.r.Read(b) }

func TestRawRulesPassAnything(t *testing.T) {
	o := startProcess(t, echo(t, plain), nil, "git.example.com:22,raw")
	if err := exchange(t, o.dial("git.example.com"), "SSH-2.0-x\r\n"); err != nil {
		t.Error(err)
	}
}

func TestNamesThatLeadElsewhereAreNotDialled(t *testing.T) {
	for name, addrs := range map[string][]string{
		"the metadata service":   {"169.254.169.254"},
		"loopback, in IPv6":      {"::ffff:127.0.0.1"},
		"two private addresses":  {"10.0.0.1", "fd00::1"},
		"no address":             {},
		"one behind NAT64, 6to4": {"64:ff9b::a9fe:a9fe", "2002:7f00:1::1"},
	} {
		t.Run(name, func(t *testing.T) {
			o := startProcess(t, echo(t, plain), func(p *process) {
				p.lookup = func(context.Context, string) ([]netip.Addr, error) {
					var all []netip.Addr
					for _, a := range addrs {
						all = append(all, netip.MustParseAddr(a))
					}
					return all, nil
				}
				p.connect = func(_ context.Context, _, address string) (net.Conn, error) {
					t.Errorf("%s was dialled", address)
					return nil, os.ErrInvalid
				}
			}, "example.com")
			c := o.dial("example.com")
			if err := tls.Client(c, client("example.com")).Handshake(); err == nil {
				t.Error("the handshake went through")
			}
			c.Close()
			o.awaitDenied("public")
		})
	}
}

func TestTheCheckedAddressIsDialled(t *testing.T) {
	server := echo(t, overTLS(t, nil))
	var mu sync.Mutex
	var dialled []string
	o := startProcess(t, server, func(p *process) {
		p.lookup = func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1"), public}, nil
		}
		p.connect = func(ctx context.Context, network, address string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			dialled = append(dialled, address)
			return (&net.Dialer{}).DialContext(ctx, network, server.Addr().String())
		}
	}, "example.com")
	if err := exchange(t, tls.Client(o.dial("example.com"), client("example.com")), "x"); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(dialled) != 1 || dialled[0] != "93.184.216.34:443" {
		t.Errorf("dialled %q", dialled)
	}
}

func TestManyConnectionsAtOnce(t *testing.T) {
	o := startProcess(t, echo(t, plain), nil, "example.com:22,raw")
	var all sync.WaitGroup
	for range 300 {
		c := o.dial("example.com")
		all.Go(func() {
			if err := exchange(t, c, "x"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func queryFor(t testing.TB, name string, kind dnsmessage.Type) []byte {
	t.Helper()
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: 7, RecursionDesired: true})
	err := errors.Join(b.StartQuestions(), b.Question(dnsmessage.Question{
		Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET,
	}))
	packet, finishErr := b.Finish()
	if err = errors.Join(err, finishErr); err != nil {
		t.Fatal(err)
	}
	return packet
}

func TestOnlyAllowedNamesHaveAnAddress(t *testing.T) {
	p := newProcess(nil)
	p.ctx = t.Context()
	all, err := allowlist.Parse([]string{"example.com", "*.example.org", "93.184.216.34"})
	if err != nil {
		t.Fatal(err)
	}
	p.live.set(all)
	p.hosts.Set("example.com", netip.MustParseAddr("100.64.0.2"), "")
	p.hosts.Set("a.example.org", netip.MustParseAddr("100.64.0.3"), "")
	p.hosts.Set("b.example.org", netip.Addr{}, question.ReasonTooMany)
	p.denials.Report = func(Denied) {}
	const https = dnsmessage.Type(65)
	tests := []struct {
		name string
		kind dnsmessage.Type
		code dnsmessage.RCode
		want string
	}{
		{"example.com.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, "100.64.0.2"},
		{"EXAMPLE.com.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, "100.64.0.2"},
		{"a.example.org.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, "100.64.0.3"},
		{"example.com.", dnsmessage.TypeAAAA, dnsmessage.RCodeSuccess, ""},
		{"example.com.", https, dnsmessage.RCodeSuccess, ""},
		{"example.com.", dnsmessage.TypeTXT, dnsmessage.RCodeSuccess, ""},
		{"b.example.org.", dnsmessage.TypeA, dnsmessage.RCodeNameError, ""},
		{"example.org.", dnsmessage.TypeA, dnsmessage.RCodeNameError, ""},
		{"secret.evil.net.", dnsmessage.TypeA, dnsmessage.RCodeNameError, ""},
		{"secret.evil.net.", dnsmessage.TypeTXT, dnsmessage.RCodeNameError, ""},
		{"93.184.216.34.", dnsmessage.TypeA, dnsmessage.RCodeNameError, ""},
		{"34.216.184.93.in-addr.arpa.", dnsmessage.TypePTR, dnsmessage.RCodeNameError, ""},
		{".", dnsmessage.TypeNS, dnsmessage.RCodeNameError, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name+" "+tt.kind.String(), func(t *testing.T) {
			var m dnsmessage.Message
			if err := m.Unpack(p.resolve(queryFor(t, tt.name, tt.kind))); err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, a := range m.Answers {
				got += netip.AddrFrom4(a.Body.(*dnsmessage.AResource).A).String()
			}
			if m.RCode != tt.code || got != tt.want || m.ID != 7 || !m.Response || len(m.Questions) != 1 {
				t.Errorf("got %s %q (%+v), want %s %q", m.RCode, got, m.Header, tt.code, tt.want)
			}
		})
	}
}

func FuzzQuery(f *testing.F) {
	f.Add(queryFor(f, "example.com.", dnsmessage.TypeA))
	f.Add([]byte{0, 0, 0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	rules, err := allowlist.Parse([]string{"example.com"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		p := newProcess(nil)
		p.ctx = t.Context()
		p.live.set(rules)
		p.denials.Report = func(Denied) {}
		p.hosts.Set("example.com", netip.MustParseAddr("100.64.0.2"), "")
		reply := p.resolve(packet)
		p.denials.Stop()
		if reply == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(reply); err != nil {
			t.Fatal(err)
		}
		if len(m.Answers) > 0 && !strings.EqualFold(strings.TrimSuffix(m.Questions[0].Name.String(), "."), "example.com") {
			t.Errorf("%s has an address", m.Questions[0].Name)
		}
	})
}
