// Package export sends the records of audit logs elsewhere: OTLP to an OpenTelemetry collector,
// and Alerts, when thresholds are reached, to a webhook. docs/audit.md is the reference.
//
// The log itself is the queue: a Queue holds few records, and makes whoever reads the log wait.
// Nobody who writes a log ever waits for it, and the package never changes a log. What the
// receiver does not take is counted, with the reason, and stays in the log.
//
// Goroutines: one for each Queue, until Close.
package export

import (
	"bytes"
	"context"

	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

// A Sink takes records. One goroutine at a time uses it.
type Sink interface {
	// Send sends records, in order, each with its Raw. It returns how many of them the
	// receiver did not take, and why. Errors: Unavailable if all of them may be sent again
	// later; another one is for good.
	Send(ctx context.Context, records []audit.Record) (dropped int, err error)
}

// The bounds of what is sent at once.
const (
	maxRecords = 256
	maxBytes   = 1 << 20
)

// Batch collects records for Send. Its zero value is empty.
type Batch struct {
	Records []audit.Record
	bytes   int
}

// Add adds a record, of which it copies what is valid for a moment only.
func (b *Batch) Add(r audit.Record) {
	r.Raw = bytes.Clone(r.Raw)
	b.Records = append(b.Records, r)
	b.bytes += len(r.Raw)
}

// IsFull reports whether the batch is to be sent before another record is added.
func (b *Batch) IsFull() bool { return len(b.Records) >= maxRecords || b.bytes >= maxBytes }

// Reset empties the batch.
func (b *Batch) Reset() { *b = Batch{} }
