package question

import (
	"context"

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

	table table[string]
}

// Check returns why a connection to a port may not be used; "": it may.
func (t *Ports) Check(ctx context.Context, port uint16) string {
	return t.table.ask(ctx, func(id uint64) { t.Ask(id, port) }, ReasonUnknown)
}

// Answer answers a question that Ask has asked, once.
func (t *Ports) Answer(id uint64, reason string) { t.table.answer(id, reason) }

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
