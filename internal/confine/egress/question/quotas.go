package question

import (
	"context"

	"github.com/agentfense/agentfense/internal/confine/egress/quota"
)

// A Use asks to use Amount of a limit of the network, or of the secret Of. Up to More are granted
// besides, so that the next question comes later.
type Use struct {
	Of     string `json:"of,omitempty"`
	Name   string `json:"name"`
	Amount int64  `json:"amount"`
	More   int64  `json:"more,omitempty"`
}

// Quotas has the questions to the supervisor about what may be used. Its zero value has none.
type Quotas struct {
	Send func(id uint64, u Use) // which Answer follows

	table table[quota.Answer]
}

// Take asks for what u says, and grants nothing without an answer.
func (t *Quotas) Take(ctx context.Context, u Use) quota.Answer {
	return t.table.ask(ctx, func(id uint64) { t.Send(id, u) }, quota.Answer{})
}

// Answer answers a question that Send has asked, once.
func (t *Quotas) Answer(id uint64, a quota.Answer) { t.table.answer(id, a) }
