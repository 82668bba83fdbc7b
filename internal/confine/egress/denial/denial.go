// Package denial counts refusals alike and reports them from time to time, a bounded number of
// them: a program inside can make any number.
package denial

import (
	"cmp"
	"sync"
	"time"
)

// Denied is what was refused.
type Denied struct {
	Host     string `json:"host"`
	Port     uint16 `json:"port,omitempty"`     // 0: of a name that was asked for
	Protocol string `json:"protocol,omitempty"` // "": TCP, or a query
	Reason   string `json:"reason"`
	Count    int    `json:"count"`
}

const (
	// pause is how long refusals alike are counted before they are reported.
	pause = 100 * time.Millisecond
	// maxKinds bounds the kinds of refusals that are told apart between two reports, in which
	// the others count as one.
	maxKinds = 256
	// maxReported bounds the kinds of which is known that they were reported.
	maxReported = 4096
)

// Table counts refusals. Its zero value is empty.
type Table struct {
	Report   func(Denied)
	MaxKinds int // that are told apart between two reports, if it is not 0

	mu       sync.Mutex
	counts   map[Denied]int // by refusals without a count
	reported map[Denied]bool
	timer    *time.Timer // nil: nothing is to report

	flushing sync.Mutex // taken before mu
}

// Others is the host of refusals beyond those that are told apart.
const Others = "(others)"

// Note counts a refusal, d.Count times. One that only goes with another, such as the question for a
// name's IPv6 address, has the count 0: it is reported once if the other never comes.
func (t *Table) Note(d Denied) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts, t.reported = map[Denied]int{}, map[Denied]bool{}
	}
	n := d.Count
	d.Count = 0
	if _, known := t.counts[d]; !known && len(t.counts) >= cmp.Or(t.MaxKinds, maxKinds) {
		d.Host, d.Port = Others, 0
	}
	t.counts[d] += n
	if t.timer == nil {
		t.timer = time.AfterFunc(pause, t.flushSoon)
	}
}

// flushSoon reports what was counted, and later what has been counted meanwhile. No other timer
// runs until a slow supervisor has taken the reports.
func (t *Table) flushSoon() {
	t.Flush()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = nil
	if len(t.counts) > 0 {
		t.timer = time.AfterFunc(pause, t.flushSoon)
	}
}

// Flush reports what was counted.
func (t *Table) Flush() {
	t.flushing.Lock()
	defer t.flushing.Unlock()
	for d, n := range t.take() {
		d.Count = n
		t.Report(d)
	}
}

// Stop has nothing reported any more unless Flush is called.
func (t *Table) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
	}
}

func (t *Table) take() map[Denied]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := t.counts
	t.counts = map[Denied]int{}
	if len(t.reported) > maxReported {
		t.reported = map[Denied]bool{}
	}
	for d, n := range counts {
		switch {
		case n == 0 && t.reported[d]:
			delete(counts, d)
		case n == 0:
			counts[d] = 1
		}
		if t.reported != nil {
			t.reported[d] = true
		}
	}
	return counts
}
