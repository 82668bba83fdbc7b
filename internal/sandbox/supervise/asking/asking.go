// Package asking keeps the refusals of a sandbox that wait for an answer. Each waits until somebody
// answers, until its time is over, which is a denial, or until no process waits for it.
//
// What is asked is bounded, because programs inside make it: how many asks wait, how many
// processes wait for them, and, by a token bucket, how many come one after another without an
// answer. What exceeds that is denied at once, and counted for the audit log. Equal asks are one.
// What was denied is not asked again for a while.
//
// Lock order: Table.answering, then Table.mu. While Options.Apply runs, only the first is held.
package asking

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
)

const (
	// maxAsks bounds the asks that wait.
	maxAsks = 8
	// maxWaiting bounds the processes that wait. The view has more threads that serve it
	// (fuseconn's maxReaders).
	maxWaiting = 32
	// burst is how many asks may come at once, and refill how long it takes until one more may.
	// An ask that somebody answers does not count.
	burst  = 10
	refill = 10 * time.Second
	// denialTime is how long an equal ask is denied after a denial.
	denialTime = time.Minute
	// maxDenials bounds the denials that are remembered.
	maxDenials = 1000
	// suppressedPause is how long asks that were not put are counted before they are recorded.
	suppressedPause = 10 * time.Second
)

// Options say how a Table asks.
type Options struct {
	Timeout time.Duration
	// Apply carries an answer that allows out, before those who wait learn of it. Its error leaves
	// the ask unanswered.
	Apply func(ask api.Ask, scope api.Scope) error
	// Record takes the events of the audit log.
	Record func(audit.Event)
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Table has the asks of a sandbox. It is safe for concurrent use.
type Table struct {
	o Options

	answering sync.Mutex // one answer at a time is carried out

	mu         sync.Mutex
	closed     bool
	next       int
	asks       map[subject]*ask
	waiting    int
	denials    map[subject]time.Time // until when; zero: as long as the table lives
	tokens     float64
	filled     time.Time // when tokens were counted
	suppressed int
	flush      *time.Timer // of suppressed; nil: there are none
	watchers   map[chan struct{}]struct{}
}

// subject is what is asked: equal asks have the same.
type subject struct {
	mount, path, host string
	need              policy.Permission
	requested         bool // its answer for once means something else
}

// ask is one that waits.
type ask struct {
	api.Ask
	done    chan struct{} // closed with the answer
	result  Result
	timer   *time.Timer
	waiting int
}

// Result is what became of an ask.
type Result struct {
	Allowed   bool
	Scope     api.Scope
	Withdrawn bool // by the one who asked
	// Suppressed says that it was denied without an ask: it was denied before, or too many wait.
	Suppressed bool
}

// New returns an empty table.
func New(o Options) *Table {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Table{
		o: o, asks: map[subject]*ask{}, denials: map[subject]time.Time{}, tokens: burst, filled: o.Now(),
		watchers: map[chan struct{}]struct{}{},
	}
}

func subjectOf(a api.Ask) subject {
	return subject{mount: a.Mount, path: a.Path, host: a.Host, need: a.Need, requested: a.Requested}
}

// Ask waits for the answer to a. withdrawn is closed when nobody waits for it.
func (t *Table) Ask(a api.Ask, withdrawn <-chan struct{}) Result {
	p := t.join(a)
	if p == nil {
		return Result{Suppressed: true}
	}
	select {
	case <-p.done:
		t.leave(p)
		return p.result
	case <-withdrawn:
		t.leave(p)
		return Result{Withdrawn: true}
	}
}

// join returns the ask that waits for the answer to a, which is new if there is none; nil if a is
// denied at once.
func (t *Table) join(a api.Ask) *ask {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := subjectOf(a)
	if t.closed || t.isDeniedLocked(key) {
		return nil
	}
	if p := t.asks[key]; p != nil && t.waiting < maxWaiting {
		t.waiting++
		p.waiting++
		t.changedLocked()
		return p
	}
	if t.asks[key] != nil || len(t.asks) >= maxAsks || t.waiting >= maxWaiting || !t.takeTokenLocked() {
		t.suppressLocked()
		return nil
	}
	t.next++
	now := t.o.Now()
	a.ID, a.Since, a.Until = fmt.Sprint(t.next), now.UTC(), now.Add(t.o.Timeout).UTC()
	p := &ask{Ask: a, done: make(chan struct{}), waiting: 1}
	p.timer = time.AfterFunc(t.o.Timeout, func() { t.expire(p) })
	t.asks[key] = p
	t.waiting++
	t.o.Record(askedEvent(a))
	t.changedLocked()
	return p
}

// isDeniedLocked reports whether the same was denied, also if the other one was requested.
func (t *Table) isDeniedLocked(key subject) bool {
	key.requested = false
	until, denied := t.denials[key]
	if denied && !until.IsZero() && !t.o.Now().Before(until) {
		delete(t.denials, key)
		return false
	}
	return denied
}

func (t *Table) takeTokenLocked() bool {
	now := t.o.Now()
	t.tokens = min(burst, t.tokens+now.Sub(t.filled).Seconds()/refill.Seconds())
	t.filled = now
	if t.tokens < 1 {
		return false
	}
	t.tokens--
	return true
}

// suppressLocked counts an ask that is not put.
func (t *Table) suppressLocked() {
	t.suppressed++
	if t.flush == nil {
		t.flush = time.AfterFunc(suppressedPause, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.flushLocked()
		})
	}
}

func (t *Table) flushLocked() {
	if t.suppressed > 0 {
		t.o.Record(audit.AsksSuppressed{Count: t.suppressed})
	}
	if t.flush != nil {
		t.flush.Stop()
	}
	t.suppressed, t.flush = 0, nil
}

// leave is called by one who no longer waits. The last one withdraws the ask, unless it is
// answered.
func (t *Table) leave(p *ask) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting--
	p.waiting--
	switch {
	case t.asks[subjectOf(p.Ask)] != p:
	case p.waiting == 0:
		t.finishLocked(p, Result{Withdrawn: true}, "withdrawn")
	default:
		t.changedLocked()
	}
}

// expire denies an ask that got no answer in time.
func (t *Table) expire(p *ask) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asks[subjectOf(p.Ask)] == p {
		t.denyLocked(p, api.ScopeOnce, "timeout")
	}
}

func (t *Table) denyLocked(p *ask, scope api.Scope, by string) {
	until := t.o.Now().Add(denialTime)
	if scope != api.ScopeOnce {
		until = time.Time{}
	}
	if len(t.denials) >= maxDenials { // any one: it is asked again, at worst
		for key := range t.denials {
			delete(t.denials, key)
			break
		}
	}
	key := subjectOf(p.Ask)
	key.requested = false
	t.denials[key] = until
	t.finishLocked(p, Result{Scope: scope}, by)
}

// finishLocked tells those who wait for an ask, and the audit log.
func (t *Table) finishLocked(p *ask, r Result, by string) {
	delete(t.asks, subjectOf(p.Ask))
	p.timer.Stop()
	p.result = r
	t.o.Record(answeredEvent(p, r, by, t.o.Now()))
	close(p.done)
	t.changedLocked()
}

// Answer answers an ask. Errors: NotFound, if it does not wait (any longer); Invalid; those of
// Options.Apply.
func (t *Table) Answer(a api.Answer) error {
	if err := a.Check(); err != nil {
		return err
	}
	if a.Scope == "" {
		a.Scope = api.ScopeOnce
	}
	t.answering.Lock()
	defer t.answering.Unlock()
	p := t.find(a.ID)
	if p == nil {
		return errdefs.New(errdefs.NotFound, "ask %s: waits no longer: it was answered, its time is over, or the program went on", a.ID)
	}
	if a.Allow {
		if err := t.o.Apply(p.Ask, a.Scope); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asks[subjectOf(p.Ask)] != p {
		return errdefs.New(errdefs.NotFound, "ask %s: waits no longer", a.ID)
	}
	t.tokens = min(burst, t.tokens+1)
	if !a.Allow {
		t.denyLocked(p, a.Scope, a.By)
		return nil
	}
	t.finishLocked(p, Result{Allowed: true, Scope: a.Scope}, a.By)
	return nil
}

func (t *Table) find(id string) *ask {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.asks {
		if p.ID == id {
			return p
		}
	}
	return nil
}

// List returns what waits, the oldest first.
func (t *Table) List() []api.Ask {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]api.Ask, 0, len(t.asks))
	for _, p := range t.asks {
		a := p.Ask
		a.Waiting = p.waiting
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b api.Ask) int {
		if len(a.ID) != len(b.ID) {
			return len(a.ID) - len(b.ID)
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all
}

// Watch returns a channel that has a token after each change, until stop is called.
func (t *Table) Watch() (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watchers[c] = struct{}{}
	return c, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.watchers, c)
	}
}

func (t *Table) changedLocked() {
	for c := range t.watchers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Close denies what waits, and all that comes.
func (t *Table) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, p := range t.asks {
		t.finishLocked(p, Result{}, "sandbox stopped")
	}
	t.flushLocked()
}
