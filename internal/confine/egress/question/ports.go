package question

import (
	"context"
	"sync"

	"github.com/agentfense/agentfense/internal/lib/ownport"
)

// Why a connection to a port of localhost may not be used.
const (
	ReasonOwnPort = "a server of agentfense listens at this port of localhost"
	ReasonNoPort  = "nothing listens at this port of localhost any more"
	ReasonUnknown = "who listens at this port of localhost cannot be told"
)

// Ports has the questions to the supervisor about ports of localhost. Its zero value has none.
type Ports struct {
	Ask func(id uint64, port uint16) // which Answer follows

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan string
}

// Check returns why a connection to a port may not be used; "": it may.
func (t *Ports) Check(ctx context.Context, port uint16) string {
	answer := make(chan string, 1)
	t.mu.Lock()
	t.last++
	id := t.last
	if t.waiting == nil {
		t.waiting = map[uint64]chan string{}
	}
	t.waiting[id] = answer
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.waiting, id)
	}()
	t.Ask(id, port)
	select {
	case reason := <-answer:
		return reason
	case <-ctx.Done():
		return ReasonUnknown
	}
}

// Answer answers a question that Ask has asked, once.
func (t *Ports) Answer(id uint64, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if answer := t.waiting[id]; answer != nil {
		delete(t.waiting, id)
		answer <- reason
	}
}

// ReasonOfPort says why a port of localhost may not be used; "": it may.
func ReasonOfPort(port uint16) string {
	switch n, marked, err := ownport.Count(port); {
	case err != nil:
		return ReasonUnknown + ": " + err.Error()
	case marked:
		return ReasonOwnPort
	case n == 0:
		return ReasonNoPort
	}
	return ""
}
