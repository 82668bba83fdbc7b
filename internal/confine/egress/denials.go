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
		t.timer = time.AfterFunc(denialPause, t.flush)
	}
}

// flush reports what was counted.
func (t *denialTable) flush() {
	for d, n := range t.take() {
		t.report(Denied{Host: d.host, Port: d.port, Reason: d.reason, Count: n})
	}
}

func (t *denialTable) take() map[denial]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := t.counts
	t.counts, t.timer = map[denial]int{}, nil
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
