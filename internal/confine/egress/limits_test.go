package egress

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/confine/egress/question"
	"github.com/agentfense/agentfense/internal/confine/egress/quota"
	"github.com/agentfense/agentfense/internal/confine/egress/secret"
)

// startLimited starts a process with limits of the network, whose connections lead to an echo.
func startLimited(t *testing.T, limits string) *outside {
	t.Helper()
	set, err := quota.ParseNetwork(limits)
	if err != nil {
		t.Fatal(err)
	}
	o := startProcess(t, echo(t, plain), func(p *process) {
		if err := p.setLimits(limits); err != nil {
			t.Error(err)
		}
	}, "a.example:1000,raw")
	o.mu.Lock()
	o.ledger = quota.NewLedger(set, nil)
	o.mu.Unlock()
	return o
}

// passes sends a text to the echo and reports whether it came back.
func passes(c net.Conn, size int) bool {
	go func() { _, _ = io.WriteString(c, strings.Repeat("x", size)) }() // it may be cut
	_, err := io.ReadFull(c, make([]byte, size))
	return err == nil
}

// reaches reports whether a new connection passes. One that is refused may be reset before it is
// used.
func (o *outside) reaches() bool {
	c, err := net.Dial("tcp", o.hosts["a.example"].String())
	if err != nil {
		return false
	}
	o.t.Cleanup(func() { c.Close() })
	return passes(c, 1)
}

func TestConnectionsBeyondTheLimitAreRefused(t *testing.T) {
	o := startLimited(t, "connections=1")
	first := o.dial("a.example")
	if !passes(first, 1) {
		t.Fatal("the first does not pass")
	}
	if o.reaches() {
		t.Error("the second passes")
	}
	o.awaitDenied("the limit connections=1 of the network is reached; raise it with --net-limit")
	if !passes(first, 1) {
		t.Error("the first was cut")
	}
	first.Close()
	o.await(func(r report) bool { return r.Closed != nil })
	for !o.reaches() { // the place is free a moment after the report
	}
}

func TestABytesLimitCutsWhatIsOpen(t *testing.T) {
	for _, name := range []string{"out", "in"} {
		t.Run(name, func(t *testing.T) {
			o := startLimited(t, name+"=1000")
			idle, busy := o.dial("a.example"), o.dial("a.example")
			if !passes(idle, 400) || !passes(busy, 600) {
				t.Fatal("what is within the limit does not pass")
			}
			if passes(busy, 1) || !isCut(t, idle) {
				t.Error("a connection goes on")
			}
			o.awaitDenied("the limit " + name + "=1000 of the network is reached")
			if o.reaches() {
				t.Error("a new connection passes")
			}
		})
	}
}

// What another process has used, and what it was granted and lost, counts.
func TestAProcessGoesOnWhereAnotherEnded(t *testing.T) {
	o := startLimited(t, "out=1000")
	o.mu.Lock()
	o.ledger.Take("", quota.Out, 900, 0, time.Now())
	o.mu.Unlock()
	c := o.dial("a.example")
	if !passes(c, 100) || passes(c, 1) {
		t.Error("it counts from the beginning")
	}
}

func TestNewConnectionsAreCounted(t *testing.T) {
	o := startLimited(t, "new=2/h")
	for range 2 {
		if !o.reaches() {
			t.Fatal("it does not pass")
		}
	}
	if o.reaches() {
		t.Error("the third passes")
	}
	o.awaitDenied("the limit new=2/h of the network is reached")
}

func TestARateSlowsDown(t *testing.T) {
	o := startLimited(t, "rate=1M/s")
	began := time.Now()
	if !passes(o.dial("a.example"), 700<<10) { // in each direction
		t.Error("it does not pass")
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("1400K passed in %s, of which 1M may pass at once", took)
	}
}

func TestASecretHasLimits(t *testing.T) {
	for _, tt := range []struct{ limits, reason string }{
		{"requests=2", "the limit requests=2 of secret API_KEY is reached; raise it with --secret-limit"},
		{"rate=2/h", "the limit rate=2/h of secret API_KEY"},
		{"out=50", "the limit out=50 of secret API_KEY"},
		{"in=100", "the limit in=100 of secret API_KEY"},
	} {
		t.Run(tt.limits, func(t *testing.T) {
			o, certificate := startWithLimitedSecret(t, tt.limits, reflect)
			set, err := quota.ParseSecret(tt.limits)
			if err != nil {
				t.Fatal(err)
			}
			o.mu.Lock()
			o.ledger = quota.NewLedger(nil, map[string]quota.Set{"API_KEY": set})
			o.mu.Unlock()
			o.handOver(map[string]string{"API_KEY": secretValue}, certificate)
			for range 2 { // a request has 15 bytes that count, an answer 46
				if status, body := o.get(insideName, "X: 0123456789\r\n"); status != http.StatusOK {
					t.Fatalf("within the limit: %d %s", status, body)
				}
			}
			if tt.limits == "in=100" { // it ends an answer
				c := o.dial(insideName)
				if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", insideName); err != nil {
					t.Fatal(err)
				}
				if text, _ := io.ReadAll(c); strings.Contains(string(text), " true") {
					t.Errorf("an answer beyond the limit is whole: %s", text)
				}
			}
			if tt.limits == "out=50" {
				if status, body := o.get(insideName, "X: 0123456789012345678901234567890\r\n"); status != http.StatusTooManyRequests {
					t.Errorf("a long head: %d %s", status, body)
				}
			}
			if status, body := o.get(insideName, "X: 0123456789\r\n"); status != http.StatusTooManyRequests || !strings.Contains(body, tt.reason) {
				t.Errorf("beyond the limit: %d %s", status, body)
			}
			o.awaitDenied(tt.reason)
		})
	}
}

func TestTheSupervisorCounts(t *testing.T) {
	e, c, _, _ := newSupervisor(t)
	set, err := quota.ParseSecret("requests=1")
	if err != nil {
		t.Fatal(err)
	}
	e.options.Secrets = []secret.Secret{{Name: "KEY", Quota: set}}
	e.options.Limits, err = quota.ParseNetwork("out=10")
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	e.options.Limited = func(of string, l quota.Limit) { told = append(told, of+" "+l.String()) }
	e.ledger, e.patience = newLedger(e.options), time.Minute
	theirs := wired(t, c)
	take := func(u *question.Use) (a quota.Answer) {
		t.Helper()
		if err := e.useQuota(c, 7, u); err != nil {
			t.Fatal(err)
		}
		var o order
		if _, err := (wire{theirs}).receive(&o); err != nil || o.Used != 7 {
			t.Fatalf("got %+v, %v", o, err)
		}
		return *o.Quota
	}
	if a := take(&question.Use{Name: quota.Out, Amount: 8, More: 100}); a.Granted != 10 || a.Reached != nil {
		t.Errorf("first: %+v", a)
	}
	for range 2 {
		if a := take(&question.Use{Name: quota.Out, Amount: 1}); a.Granted != 0 || a.Reached == nil {
			t.Errorf("then: %+v", a)
		}
	}
	if a := take(&question.Use{Of: "KEY", Name: quota.Requests, Amount: 1}); a.Granted != 1 {
		t.Errorf("a request: %+v", a)
	}
	if a := take(&question.Use{Of: "KEY", Name: quota.Requests, Amount: 1}); a.Granted != 0 || a.Reached == nil {
		t.Errorf("another request: %+v", a)
	}
	if got := strings.Join(told, "; "); got != " out=10; KEY requests=1" {
		t.Errorf("told of %s", got)
	}
	for _, u := range []*question.Use{nil, {Name: quota.Out, Amount: -1}, {Name: quota.Out}, {Name: quota.Out, Amount: 1, More: -1}, {Name: quota.Out, Amount: 1, More: 1 << 60}} {
		if err := e.useQuota(c, 8, u); err == nil {
			t.Errorf("%+v is taken", u)
		}
	}
}

// Without an answer nothing passes.
func TestNothingIsGrantedWithoutAnAnswer(t *testing.T) {
	var q question.Quotas
	q.Send = func(uint64, question.Use) {}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := poolOf(q.Take, "", quota.Set{{Name: quota.Out, Max: 1000}}, quota.Out)
	if n, reached := p.take(ctx, 10); n != 0 || reached {
		t.Errorf("got %d, %t", n, reached)
	}
}

// A program's connection of HTTP/2 may need several to the host.
func TestConnectionsForRequestsAreLimited(t *testing.T) {
	for _, limits := range []string{"connections=1", "new=1/h"} {
		t.Run(limits, func(t *testing.T) {
			set, err := quota.ParseNetwork(limits)
			if err != nil {
				t.Fatal(err)
			}
			asked, answer := make(chan struct{}, 1), make(chan struct{})
			host := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					asked <- struct{}{}
					<-answer
				}
			}))
			i := startInterceptionOf(t, host, func(p *process) {
				if err := p.setLimits(limits); err != nil {
					t.Error(err)
				}
			}, nil, "example.com,intercept")
			i.mu.Lock()
			i.ledger = quota.NewLedger(set, nil)
			i.mu.Unlock()
			c := i.client("example.com", true)
			var slow sync.WaitGroup
			slow.Go(func() {
				if status, text := i.ask(c, "GET", "https://example.com/slow", ""); status != http.StatusOK {
					t.Errorf("the first: %d %s", status, text)
				}
			})
			<-asked
			status, text := i.ask(c, "GET", "https://example.com/", "")
			close(answer)
			slow.Wait()
			if status != http.StatusForbidden || !strings.Contains(text, "the limit "+limits) {
				t.Fatalf("the second: %d %s", status, text)
			}
			i.awaitDenied("the limit " + limits + " of the network is reached")
		})
	}
}
