package publish

import (
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Event is what a Server tells of a connection: that it has begun, and later that it has ended.
type Event struct {
	ID    uint64 `json:"id"`
	Ended bool   `json:"ended,omitempty"`
	Inbound
}

const (
	// maxOpen bounds the connections that a Server may say are open: what it has, and what has not
	// been read yet.
	maxOpen      = 3 * maxConns
	maxErrorText = 300     // bytes
	maxSum       = 1 << 53 // bytes of a connection: every JSON parser has it exactly
)

// Open has the connections that a Server has begun. What it says is not believed. The zero value
// has none.
type Open struct{ conns map[uint64]Port }

// Take acts on an event. It reports whether a connection has ended, with what to tell of it.
// Errors: Internal, for a connection that cannot be.
func (o *Open) Take(e Event, listeners []*Listener) (in Inbound, ended bool, err error) {
	port, known := o.conns[e.ID]
	if !e.Ended {
		published := slices.ContainsFunc(listeners, func(l *Listener) bool { return l.Port == e.Port })
		if known || !published || len(o.conns) >= maxOpen {
			return in, false, errdefs.New(errdefs.Internal, "it told of a connection to a port that cannot be")
		}
		if o.conns == nil {
			o.conns = map[uint64]Port{}
		}
		o.conns[e.ID] = e.Port
		return in, false, nil
	}
	delete(o.conns, e.ID)
	return Inbound{
		Port: port, Error: e.Error[:min(len(e.Error), maxErrorText)],
		Sent: min(max(e.Sent, 0), maxSum), Received: min(max(e.Received, 0), maxSum),
	}, known, nil
}

// Rest returns the connections of a Server that is gone.
func (o *Open) Rest() (all []Inbound) {
	for _, p := range o.conns {
		all = append(all, Inbound{Port: p, Sent: -1, Received: -1})
	}
	o.conns = nil
	return all
}
