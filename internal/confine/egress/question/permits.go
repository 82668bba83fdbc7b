package question

import "context"

// maxPermits bounds the questions at once. Each holds a query, of which there must be more.
const maxPermits = 16

// Permits has the questions to the supervisor whether hosts that no rule allows may be reached: a
// person answers.
type Permits struct {
	ask   func(id uint64, host string)
	table table[bool]
	slots chan struct{}
}

// NewPermits returns Permits without questions. Answer follows what ask asks.
func NewPermits(ask func(id uint64, host string)) *Permits {
	return &Permits{ask: ask, slots: make(chan struct{}, maxPermits)}
}

// Request reports whether the rules allow a host now.
func (t *Permits) Request(ctx context.Context, host string) bool {
	select {
	case t.slots <- struct{}{}:
	default:
		return false
	}
	defer func() { <-t.slots }()
	return t.table.ask(ctx, func(id uint64) { t.ask(id, host) }, false)
}

// Answer answers a question of Request, once.
func (t *Permits) Answer(id uint64, allowed bool) { t.table.answer(id, allowed) }
