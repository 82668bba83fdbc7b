package egress

import (
	"sync"
	"time"
)

const (
	// denialPause is how long refusals alike are counted before they are reported.
	denialPause = 100 * time.Millisecond
	// maxDenials bounds the kinds of refusals that are told apart between two reports, in which
	// the others count as one.
	maxDenials = 256
	// maxReported bounds the kinds of which is known that they were reported.
	maxReported = 4096
)

// denialTable counts refusals alike and reports them from time to time: a program inside can make
// any number. Its zero value is empty.
type denialTable struct {
	report func(Denied)

	mu       sync.Mutex
	counts   map[denial]int
	reported map[denial]bool
	timer    *time.Timer // nil: nothing is to report

	flushing sync.Mutex // taken before mu
}

// denial is what refusals alike share.
type denial struct {
	host   string
	port   uint16
	reason string
}

// manyOthers is the host of refusals beyond maxDenials.
const manyOthers = "(others)"

// note counts a refusal. One that only goes with another, such as the question for a name's IPv6
// address, weighs nothing: it is reported once if the other never comes.
func (t *denialTable) note(host string, port uint16, reason string, weight int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts, t.reported = map[denial]int{}, map[denial]bool{}
	}
	d := denial{host, port, reason}
	if _, known := t.counts[d]; !known && len(t.counts) >= maxDenials {
		d.host, d.port = manyOthers, 0
	}
	t.counts[d] += weight
	if t.timer == nil {
		t.timer = time.AfterFunc(denialPause, t.flushSoon)
	}
}

// flushSoon reports what was counted, and later what has been counted meanwhile. No other timer
// runs until a slow supervisor has taken the reports.
func (t *denialTable) flushSoon() {
	t.flush()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = nil
	if len(t.counts) > 0 {
		t.timer = time.AfterFunc(denialPause, t.flushSoon)
	}
}

// flush reports what was counted.
func (t *denialTable) flush() {
	t.flushing.Lock()
	defer t.flushing.Unlock()
	for d, n := range t.take() {
		t.report(Denied{Host: d.host, Port: d.port, Reason: d.reason, Count: n})
	}
}

func (t *denialTable) take() map[denial]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := t.counts
	t.counts = map[denial]int{}
	if len(t.reported) > maxReported {
		t.reported = map[denial]bool{}
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
