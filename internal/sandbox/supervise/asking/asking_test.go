package asking

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a table with a clock that the test sets, and what it recorded and applied.
type bench struct {
	*Table
	mu      sync.Mutex
	now     time.Time
	events  []audit.Event
	applied []api.Ask
	refuse  error
}

func newBench(t *testing.T, timeout time.Duration) *bench {
	b := &bench{now: time.Unix(1_000_000, 0)}
	b.Table = New(Options{
		Timeout: timeout,
		Apply: func(a api.Ask, _ api.Scope) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.applied = append(b.applied, a)
			return b.refuse
		},
		Record: func(ev audit.Event) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.events = append(b.events, ev)
		},
		Now: func() time.Time {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.now
		},
	})
	t.Cleanup(b.Close)
	return b
}

func (b *bench) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

func (b *bench) count(kind audit.Kind) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ev := range b.events {
		if ev.Kind() == kind {
			n++
		}
	}
	return n
}

func file(name string) api.Ask {
	return api.Ask{Path: name, Permission: policy.View, Need: policy.Read, Operation: "open"}
}

// start asks meanwhile.
func (b *bench) start(a api.Ask, withdrawn <-chan struct{}) <-chan Result {
	c := make(chan Result, 1)
	go func() { c <- b.Ask(a, withdrawn) }()
	return c
}

func (b *bench) waits(t *testing.T, asks, callers int) []api.Ask {
	t.Helper()
	var all []api.Ask
	testenv.Eventually(t, fmt.Sprintf("%d asks of %d callers", asks, callers), func() bool {
		all = b.List()
		n := 0
		for _, a := range all {
			n += a.Waiting
		}
		return len(all) == asks && n == callers
	})
	return all
}

func TestAnAnswerReachesAllWhoAskTheSame(t *testing.T) {
	b := newBench(t, time.Hour)
	first, second := b.start(file("a"), nil), b.start(file("a"), nil)
	all := b.waits(t, 1, 2)
	if err := b.Answer(api.Answer{ID: all[0].ID, Allow: true, By: "test"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []<-chan Result{first, second} {
		if r := <-c; !r.Allowed || r.Scope != api.ScopeOnce {
			t.Errorf("got %+v", r)
		}
	}
	if asked, answered := b.count(audit.KindAccessAsked), b.count(audit.KindAccessAnswered); asked != 1 || answered != 1 || len(b.applied) != 1 {
		t.Errorf("%d events of the ask, %d of the answer, applied %d times", asked, answered, len(b.applied))
	}
	if err := b.Answer(api.Answer{ID: all[0].ID, Allow: true}); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("a second answer: %v", err)
	}
	if err := b.Answer(api.Answer{ID: "1", Scope: "for ever"}); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("an unknown scope: %v", err)
	}
}

func TestADenialIsRemembered(t *testing.T) {
	b := newBench(t, time.Hour)
	for _, tt := range []struct {
		scope api.Scope
		after time.Duration
		again bool
	}{{api.ScopeOnce, denialTime - 1, false}, {api.ScopeOnce, denialTime, true}, {api.ScopeSandbox, 1000 * time.Hour, false}} {
		a := file(fmt.Sprint(tt))
		c := b.start(a, nil)
		if err := b.Answer(api.Answer{ID: b.waits(t, 1, 1)[0].ID, Scope: tt.scope}); err != nil {
			t.Fatal(err)
		}
		if r := <-c; r.Allowed || r.Withdrawn {
			t.Errorf("%+v: %+v", tt, r)
		}
		b.pass(tt.after)
		gone := make(chan struct{})
		c = b.start(a, gone)
		if !tt.again {
			if r := <-c; r.Allowed || len(b.List()) > 0 {
				t.Errorf("%+v: asked again: %+v", tt, r)
			}
			continue
		}
		b.waits(t, 1, 1)
		close(gone)
		<-c
	}
}

func TestTimeIsUp(t *testing.T) {
	b := newBench(t, time.Millisecond)
	if r := b.Ask(file("a"), nil); r.Allowed || r.Withdrawn {
		t.Errorf("got %+v", r)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if last, is := b.events[len(b.events)-1].(audit.AccessAnswered); !is || last.By != "timeout" || last.Allowed {
		t.Errorf("the log ends with %+v", b.events[len(b.events)-1])
	}
}

func TestTheLastWhoLeavesWithdraws(t *testing.T) {
	b := newBench(t, time.Hour)
	one, two := make(chan struct{}), make(chan struct{})
	first, second := b.start(file("a"), one), b.start(file("a"), two)
	b.waits(t, 1, 2)
	close(one)
	if r := <-first; !r.Withdrawn {
		t.Errorf("got %+v", r)
	}
	b.waits(t, 1, 1)
	close(two)
	<-second
	b.waits(t, 0, 0)
	c := b.start(file("a"), nil) // nobody has denied it
	b.waits(t, 1, 1)
	b.Close()
	if r := <-c; r.Allowed {
		t.Errorf("after Close: %+v", r)
	}
	if r := b.Ask(file("b"), nil); r.Allowed {
		t.Errorf("asked after Close: %+v", r)
	}
}

// TestAFloodIsDenied: what is asked is bounded, the rest is denied at once and counted; who
// answers can answer any number.
func TestAFloodIsDenied(t *testing.T) {
	b := newBench(t, time.Hour)
	gone := make(chan struct{})
	var all sync.WaitGroup
	for i := range maxAsks {
		all.Go(func() { b.Ask(file(fmt.Sprint("waits", i)), gone) })
	}
	b.waits(t, maxAsks, maxAsks)
	const flood = 1000
	for i := range flood {
		if r := b.Ask(file(fmt.Sprint("flood", i)), nil); r.Allowed {
			t.Fatal("allowed")
		}
	}
	for range maxWaiting - maxAsks { // the same again is bounded, too
		all.Go(func() { b.Ask(file("waits0"), gone) })
	}
	b.waits(t, maxAsks, maxWaiting)
	b.Ask(file("waits0"), nil)
	close(gone)
	all.Wait()
	for i := range burst - maxAsks { // what is left of the bucket
		c := b.start(file(fmt.Sprint("left", i)), nil)
		b.waits(t, 1, 1)
		b.expireAll()
		<-c
	}
	b.Ask(file("too much"), nil)
	if n := b.count(audit.KindAccessAsked); n != burst {
		t.Errorf("%d asks, want %d", n, burst)
	}
	b.pass(refill)
	c := b.start(file("answered"), nil)
	for range 3 * burst { // an answer gives the token back
		if err := b.Answer(api.Answer{ID: b.waits(t, 1, 1)[0].ID, Allow: true}); err != nil {
			t.Fatal(err)
		}
		<-c
		c = b.start(file("answered"), nil)
	}
	b.waits(t, 1, 1)
	b.Close()
	<-c
	b.mu.Lock()
	defer b.mu.Unlock()
	suppressed := 0
	for _, ev := range b.events {
		if s, is := ev.(audit.AsksSuppressed); is {
			suppressed += s.Count
		}
	}
	if want := flood + 2; suppressed != want {
		t.Errorf("%d asks counted as suppressed, want %d", suppressed, want)
	}
}

// expireAll lets the time of all asks be over.
func (b *bench) expireAll() {
	b.Table.mu.Lock()
	var all []*ask
	for _, p := range b.asks {
		all = append(all, p)
	}
	b.Table.mu.Unlock()
	for _, p := range all {
		b.expire(p)
	}
}

func TestAnAnswerThatCannotBeCarriedOutLeavesTheAsk(t *testing.T) {
	b := newBench(t, time.Hour)
	c := b.start(file("a"), nil)
	id := b.waits(t, 1, 1)[0].ID
	b.mu.Lock()
	b.refuse = errdefs.New(errdefs.Exhausted, "full")
	b.mu.Unlock()
	if err := b.Answer(api.Answer{ID: id, Allow: true, Scope: api.ScopeSandbox}); !errdefs.Is(err, errdefs.Exhausted) {
		t.Errorf("got %v", err)
	}
	b.waits(t, 1, 1)
	if err := b.Answer(api.Answer{ID: id}); err != nil {
		t.Error(err)
	}
	<-c
}

func TestWatchersLearnOfEachChange(t *testing.T) {
	b := newBench(t, time.Hour)
	changed, stop := b.Watch()
	gone := make(chan struct{})
	c := b.start(file("a"), gone)
	<-changed
	close(gone)
	<-c
	<-changed
	stop()
	b.Ask(file("b"), closedChannel())
	select {
	case <-changed:
		t.Error("told after stop")
	default:
	}
}

func closedChannel() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// A request is another ask than the refusal of the same path, because "once" means something else
// for it. A denial counts for both. Asks of mounts are their own.
func TestRequestsBesideRefusals(t *testing.T) {
	b := newBench(t, time.Minute)
	request, inMount := file("a"), file("a")
	request.Requested, inMount.Mount = true, "data"
	results := make([]chan Result, 3)
	for i, a := range []api.Ask{file("a"), request, inMount} {
		results[i] = make(chan Result, 1)
		go func() { results[i] <- b.Ask(a, nil) }()
		testenv.Eventually(t, "it waits", func() bool { return len(b.List()) == i+1 })
	}
	for i, answer := range []api.Answer{{ID: "1", Allow: true}, {ID: "2"}, {ID: "3", Allow: true}} {
		if err := b.Answer(answer); err != nil {
			t.Fatal(err)
		}
		if r := <-results[i]; r.Allowed != answer.Allow || r.Suppressed {
			t.Errorf("ask %s: %+v", answer.ID, r)
		}
	}
	for _, a := range []api.Ask{file("a"), request} {
		if r := b.Ask(a, nil); r.Allowed || !r.Suppressed {
			t.Errorf("requested %v, after the denial: %+v", a.Requested, r)
		}
	}
	for _, scope := range []api.Scope{api.ScopeProject, "other"} {
		if err := b.Answer(api.Answer{ID: "1", Scope: scope}); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("a denial with scope %s: %v", scope, err)
		}
	}
}
