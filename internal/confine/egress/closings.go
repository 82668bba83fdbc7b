package egress

import (
	"sync"
	"time"
)

const (
	// closingPause is how long connections that have ended wait to be reported together: each
	// report wakes the supervisor. It learns of each connection before it carries anything.
	closingPause = 5 * time.Millisecond
	// maxClosings bounds how many of them wait.
	maxClosings = 64
)

// closingTable collects what ended connections carried. Its zero value is empty.
type closingTable struct {
	report func([]closed)

	mu      sync.Mutex
	waiting []closed

	flushing sync.Mutex // taken before mu
}

// note takes a connection that has ended. It waits for a slow supervisor if there are many.
func (t *closingTable) note(c closed) {
	t.mu.Lock()
	t.waiting = append(t.waiting, c)
	n := len(t.waiting)
	t.mu.Unlock()
	switch {
	case n >= maxClosings:
		t.flush()
	case n == 1:
		time.AfterFunc(closingPause, t.flush)
	}
}

// flush reports what waits.
func (t *closingTable) flush() {
	t.flushing.Lock()
	defer t.flushing.Unlock()
	t.mu.Lock()
	ended := t.waiting
	t.waiting = nil
	t.mu.Unlock()
	if len(ended) > 0 {
		t.report(ended)
	}
}
