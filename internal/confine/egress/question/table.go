package question

import (
	"context"
	"sync"
)

// table has the questions that wait for an answer, by their numbers. Its zero value has none.
type table[A any] struct {
	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan A
}

// ask asks, by a number, and waits for the answer. It is none if none comes as long as ctx lasts.
func (t *table[A]) ask(ctx context.Context, send func(id uint64), none A) A {
	answer := make(chan A, 1)
	t.mu.Lock()
	t.last++
	id := t.last
	if t.waiting == nil {
		t.waiting = map[uint64]chan A{}
	}
	t.waiting[id] = answer
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.waiting, id)
	}()
	send(id)
	select {
	case a := <-answer:
		return a
	case <-ctx.Done():
		return none
	}
}

// answer answers a question, once.
func (t *table[A]) answer(id uint64, a A) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if answer := t.waiting[id]; answer != nil {
		delete(t.waiting, id)
		answer <- a
	}
}
