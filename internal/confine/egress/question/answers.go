package question

import "sync"

// answers has questions that wait for an answer, by number. Its zero value has none.
type answers[T any] struct {
	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan T
}

// begin makes a question. end follows.
func (a *answers[T]) begin() (id uint64, answer chan T) {
	answer = make(chan T, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last++
	if a.waiting == nil {
		a.waiting = map[uint64]chan T{}
	}
	a.waiting[a.last] = answer
	return a.last, answer
}

func (a *answers[T]) end(id uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, id)
}

// give answers a question once. It reports whether somebody waits for that.
func (a *answers[T]) give(id uint64, answer T) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	to := a.waiting[id]
	if to == nil {
		return false
	}
	delete(a.waiting, id)
	to <- answer
	return true
}
