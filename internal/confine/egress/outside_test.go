package egress

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/egress/address"
	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/quota"
)

// outside is an egress process in this one, and what is around it: its supervisor, and a server
// that every name leads to.
type outside struct {
	t     testing.TB
	wire  wire
	hosts map[allowlist.Host]netip.AddrPort // listeners, of port 443 or 80
	ended chan error

	mu      sync.Mutex
	ledger  *quota.Ledger // answers what the process wants to use
	reports []report
	more    *sync.Cond
}

// public is the address that names have.
var public = netip.MustParseAddr("93.184.216.34")

// startProcess starts a process with rules, whose connections all lead to server.
func startProcess(t *testing.T, server net.Listener, change func(*process), rules ...string) *outside {
	t.Helper()
	ours, theirs, err := wirePair()
	if err != nil {
		t.Fatal(err)
	}
	p := newProcess(theirs)
	p.lookup = func(context.Context, string) ([]netip.Addr, error) { return []netip.Addr{public}, nil }
	p.check = address.CheckPublic
	p.connect = func(ctx context.Context, network, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server.Addr().String())
	}
	if change != nil {
		change(p)
	}
	o := &outside{t: t, wire: wire{ours}, hosts: map[allowlist.Host]netip.AddrPort{}, ended: make(chan error, 1)}
	o.more = sync.NewCond(&o.mu)
	go func() {
		o.ended <- p.run()
		theirs.Close()
	}()
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		o.hear()
	}()
	t.Cleanup(func() {
		control(ours, func(fd int) { _ = unix.Shutdown(fd, unix.SHUT_WR) })
		if err := <-o.ended; err != nil {
			t.Error(err)
		}
		<-heard
		ours.Close()
	})
	all := o.setRules(rules...)
	for _, r := range all {
		if !r.Wildcard {
			o.place(r.Host, r.Port)
		}
	}
	return o
}

// setRules tells the process of rules.
func (o *outside) setRules(texts ...string) []allowlist.Rule {
	o.t.Helper()
	rules, err := allowlist.Parse(texts)
	if err == nil {
		err = o.wire.send(order{SetRules: true, Rules: allowlist.Texts(rules)})
	}
	if err != nil {
		o.t.Fatal(err)
	}
	return rules
}

// place gives a host an address, where listeners of this test have its place.
func (o *outside) place(h allowlist.Host, port uint16) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		o.t.Fatal(err)
	}
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		o.t.Fatal(err)
	}
	defer f.Close()
	l.Close()
	o.hosts[h] = netip.MustParseAddrPort(l.Addr().String())
	if err := o.wire.send(order{Host: string(h), Addr: Resolver.Next(), Ports: []uint16{port}}, f); err != nil {
		o.t.Fatal(err)
	}
}

func (o *outside) hear() {
	for {
		var r report
		if _, err := o.wire.receive(&r); err != nil {
			return
		}
		o.mu.Lock()
		if r.Use != 0 {
			var a quota.Answer
			if r.Wanted.Name == quota.Requests {
				a = o.ledger.Request(r.Wanted.Of, time.Now())
			} else {
				a = o.ledger.Take(r.Wanted.Of, r.Wanted.Name, r.Wanted.Amount, r.Wanted.More, time.Now())
			}
			_ = o.wire.send(order{Used: r.Use, Quota: &a}) // it may have ended
		}
		o.reports = append(o.reports, r)
		o.more.Broadcast()
		o.mu.Unlock()
	}
}

// await returns the first report that is wanted.
func (o *outside) await(wanted func(report) bool) report {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		for _, r := range o.reports {
			if wanted(r) {
				return r
			}
		}
		o.more.Wait()
	}
}

func (o *outside) awaitDenied(reason string) {
	o.await(func(r report) bool { return r.Denied != nil && strings.Contains(r.Denied.Reason, reason) })
}

func (o *outside) dial(h allowlist.Host) net.Conn {
	o.t.Helper()
	c, err := net.Dial("tcp", o.hosts[h].String())
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		o.t.Fatal(err)
	}
	return c
}

// echo serves connections that get back what they send.
func echo(t *testing.T, wrap func(net.Conn) net.Conn) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer c.Close()
				w := wrap(c)
				_, _ = io.Copy(w, w) // it ends with the client
				if closer, is := w.(interface{ CloseWrite() error }); is {
					_ = closer.CloseWrite()
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		served.Wait()
	})
	return l
}

func plain(c net.Conn) net.Conn { return c }

// overTLS is a server of any name, with a configuration.
func overTLS(t *testing.T, change func(*tls.Config)) func(net.Conn) net.Conn {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	if change != nil {
		change(config)
	}
	return func(c net.Conn) net.Conn { return tls.Server(c, config) }
}

func client(name string) *tls.Config {
	return &tls.Config{ServerName: name, InsecureSkipVerify: true} // the test's server has no authority
}

// exchange sends a text and expects it back.
func exchange(t *testing.T, c net.Conn, text string) error {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		return err
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if string(got) != text {
		return fmt.Errorf("got %q, want %q", got, text)
	}
	return nil
}
