package egress

import (
	"errors"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/question"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// acknowledged waits until the process has carried out all that it was told.
func (o *outside) acknowledged(number uint64) {
	o.t.Helper()
	if err := o.wire.send(order{Acknowledge: number}); err != nil {
		o.t.Fatal(err)
	}
	o.await(func(r report) bool { return r.Obeyed == number })
}

// isCut reports whether a connection ends.
func isCut(t *testing.T, c net.Conn) bool {
	t.Helper()
	_, err := c.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the connection lives")
	}
	return errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET)
}

func TestARevokedHostIsCutAndOthersStay(t *testing.T) {
	o := startProcess(t, echo(t, plain), nil, "a.example:70,raw", "b.example:70,raw")
	a, b := o.dial("a.example"), o.dial("b.example")
	for _, c := range []net.Conn{a, b} {
		if err := exchange(t, c, "before"); err != nil {
			t.Fatal(err)
		}
	}
	o.setRules("b.example:70,raw")
	o.acknowledged(1)
	if !isCut(t, a) {
		t.Error("the connection of the revoked host was not cut")
	}
	o.awaitDenied(reasonRevoked)
	if c, err := net.Dial("tcp", o.hosts["a.example"].String()); err == nil {
		c.Close()
		t.Error("its listener is there")
	}
	if err := exchange(t, b, "after"); err != nil {
		t.Errorf("the other host: %v", err)
	}
}

// A connection that passes anything is not kept by a rule that allows TLS alone.
func TestARawConnectionIsCutWhenOnlyTLSIsLeft(t *testing.T) {
	o := startProcess(t, echo(t, plain), nil, "a.example:70,raw")
	c := o.dial("a.example")
	if err := exchange(t, c, "before"); err != nil {
		t.Fatal(err)
	}
	o.setRules("a.example:70")
	o.acknowledged(1)
	if !isCut(t, c) {
		t.Error("it was not cut")
	}
}

func TestAGrantedHostIsReached(t *testing.T) {
	o := startProcess(t, echo(t, plain), nil)
	o.setRules("a.example:70,raw")
	o.place("a.example", 70)
	o.acknowledged(1)
	if err := exchange(t, o.dial("a.example"), "granted"); err != nil {
		t.Error(err)
	}
}

// A listener that comes after its rule was revoked is not kept.
func TestAListenerWithoutARuleIsClosed(t *testing.T) {
	o := startProcess(t, echo(t, plain), nil, "a.example:70,raw")
	o.setRules()
	o.place("a.example", 70)
	o.acknowledged(1)
	if c, err := net.Dial("tcp", o.hosts["a.example"].String()); err == nil {
		c.Close()
		t.Error("its listener is there")
	}
}

func TestNamesFollowTheRules(t *testing.T) {
	p := newProcess(nil)
	p.ctx = t.Context()
	p.denials.Report = func(Denied) {}
	answer := func() dnsmessage.RCode {
		var m dnsmessage.Message
		if err := m.Unpack(p.resolve(queryFor(t, "a.example.", dnsmessage.TypeA))); err != nil {
			t.Fatal(err)
		}
		return m.RCode
	}
	p.hosts.Ask = func(h allowlist.Host) { p.hosts.Set(h, netip.Addr{}, question.ReasonTooMany) }
	for _, step := range []struct {
		name  string
		rules []string
		want  dnsmessage.RCode
	}{
		{"at the start", nil, dnsmessage.RCodeNameError},
		{"granted, and there is no room", []string{"a.example:443"}, dnsmessage.RCodeNameError},
		{"asked again", []string{"a.example:443"}, dnsmessage.RCodeSuccess},
		{"revoked", nil, dnsmessage.RCodeNameError},
	} {
		if err := p.setRules(step.rules); err != nil {
			t.Fatal(err)
		}
		if got := answer(); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
		if step.rules != nil {
			p.hosts.Ask = func(h allowlist.Host) { p.hosts.Set(h, Resolver.Next(), "") }
		}
	}
	p.denials.Flush()
}

// openPorts returns the ports at which a host's listeners are.
func openPorts(e *Egress, name allowlist.Host) []uint16 {
	if h := e.hosts[name]; h != nil {
		return slices.Sorted(maps.Keys(h.listeners))
	}
	return nil
}

func TestListenersFollowTheRules(t *testing.T) {
	e := newAssigner(t, "a.example", "b.example:80", "*.example.com")
	for _, r := range e.rules {
		if !r.Wildcard {
			if _, err := e.assign(r.Host); err != nil {
				t.Fatal(err)
			}
		}
	}
	below := e.hosts["b.example"].addr
	if _, err := e.assign("x.example.com"); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		rules []string
		want  map[allowlist.Host][]uint16
	}{
		{[]string{"a.example", "a.example:80", "10.1.2.3:22,raw"}, map[allowlist.Host][]uint16{"a.example": {80, 443}, "10.1.2.3": {22}}},
		{[]string{"b.example", "*.example.com:80"}, map[allowlist.Host][]uint16{"b.example": {443}, "x.example.com": {80}}},
		{nil, nil},
	} {
		rules, err := allowlist.Parse(step.rules)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.SetRules(rules); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, name := range []allowlist.Host{"a.example", "b.example", "10.1.2.3", "x.example.com"} {
			if got := openPorts(e, name); !slices.Equal(got, step.want[name]) {
				t.Errorf("%v: %s has %v, want %v", step.rules, name, got, step.want[name])
			}
			n += len(step.want[name])
		}
		if e.taken != n {
			t.Errorf("%v: %d listeners are counted, want %d", step.rules, e.taken, n)
		}
	}
	if got := e.hosts["b.example"].addr; got != below {
		t.Errorf("b.example had %s and has %s now", below, got)
	}
}

func TestRulesForMoreListenersThanThereAreChangeNothing(t *testing.T) {
	e := newAssigner(t, "a.example")
	if _, err := e.assign("a.example"); err != nil {
		t.Fatal(err)
	}
	e.taken = maxListeners // as if others had them
	rules, err := allowlist.Parse([]string{"b.example"})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.SetRules(rules); !errdefs.Is(err, errdefs.Exhausted) && !errdefs.Is(err, errdefs.Denied) {
		t.Errorf("got %v", err)
	}
	e.taken = 1
	if got := openPorts(e, "a.example"); !slices.Equal(got, []uint16{443}) || len(e.rules) != 1 || e.rules[0].Host != "a.example" {
		t.Errorf("after a refused change: ports %v, rules %v", got, e.rules)
	}
}

// A process that does not obey is killed; the next one begins with the rules as they are then.
func TestAProcessThatDoesNotObeyIsKilled(t *testing.T) {
	e := newAssigner(t, "a.example")
	ours, theirs, err := wirePair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	sleep, err := os.StartProcess("/bin/sleep", []string{"sleep", "600"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	c := &child{wire: wire{ours}, process: sleep, gone: make(chan struct{}), obeyed: map[uint64]chan struct{}{}}
	e.child = c
	go func() {
		_, _ = sleep.Wait() // it is killed
		close(c.gone)
	}()
	e.patience = time.Millisecond
	if err := e.SetRules(nil); err != nil {
		t.Error(err)
	}
	select {
	case <-c.gone:
	default:
		t.Error("it lives")
	}
}

// What a supervisor that is busy has not read yet does not keep the process from what it is told
// next: the supervisor would wait for that, too.
func TestABusySupervisorIsObeyed(t *testing.T) {
	o := startProcess(t, echo(t, plain), nil, "a.example:1000,raw")
	c := o.dial("a.example")
	if !passes(c, 1) {
		t.Fatal("it does not pass")
	}
	o.mu.Lock() // it reads one more report
	defer o.mu.Unlock()
	for i := range uint64(1000) { // more than the socket and the channel hold
		if err := o.wire.send(order{Acknowledge: i + 1}); err != nil {
			t.Fatal(err)
		}
	}
	var files []*os.File
	for _, text := range []string{"{}", ""} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteString(text); err != nil {
			t.Fatal(err)
		}
		w.Close()
		files = append(files, r)
	}
	defer closeAll(files)
	if err := o.wire.send(order{Handover: true}, files...); err != nil {
		t.Fatal(err)
	}
	o.setRules()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if !isCut(t, c) {
		t.Error("the connection goes on")
	}
}
