package export

import (
	"context"
	"errors"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

// Pauses of sending.
const (
	linger     = 500 * time.Millisecond // for how long a record waits for others to be sent with
	firstRetry = 250 * time.Millisecond
	lastRetry  = 30 * time.Second
	maxSilence = 10 * time.Second // without an answer, at the end
)

// Report says what became of the records of a Queue.
type Report struct {
	Sent    int
	Dropped int   // that the receiver did not take
	Err     error // why, of the last of them
}

// Queue sends records from its own goroutine.
type Queue struct {
	sink   Sink
	in     chan audit.Record
	closed chan struct{} // closed when nothing more is added
	done   chan struct{} // closed when the goroutine has ended
	// troubled has a token while a receiver does not take what it was sent.
	troubled chan struct{}
	taken    chan struct{} // has one when a receiver has answered

	ctx    context.Context
	cancel context.CancelFunc
	report Report // the goroutine's until it has ended
}

// NewQueue returns a queue, which must be closed.
func NewQueue(sink Sink) *Queue {
	q := &Queue{sink: sink, in: make(chan audit.Record), closed: make(chan struct{}), done: make(chan struct{}), troubled: make(chan struct{}, 1), taken: make(chan struct{}, 1)}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	go q.run()
	return q
}

// Add adds a record. It waits while the receiver does not take the earlier ones. Errors: Canceled
// if ctx ended first; the record is not added then.
func (q *Queue) Add(ctx context.Context, r audit.Record) error {
	var one Batch
	one.Add(r)
	select {
	case q.in <- one.Records[0]:
		return nil
	case <-ctx.Done():
		return errdefs.New(errdefs.Canceled, "export: %w", ctx.Err())
	}
}

// Close sends what was added, and what rest adds, as far as it is taken before ctx ends. It gives
// up a receiver that does not answer, and after patience one that answers that it is in trouble.
// Nobody else may add any more. Errors: those of rest.
func (q *Queue) Close(ctx context.Context, patience time.Duration, rest func(context.Context) error) (Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	added := make(chan error, 1)
	go func() {
		added <- rest(ctx)
		close(q.closed)
	}()
	q.await(ctx, patience)
	cancel()
	q.cancel()
	<-q.done
	return q.report, <-added
}

func (q *Queue) await(ctx context.Context, patience time.Duration) {
	silence := time.NewTimer(maxSilence)
	defer silence.Stop()
	trouble, troubled := (<-chan time.Time)(nil), q.troubled
	for {
		select {
		case <-q.taken:
			silence.Reset(maxSilence)
			trouble, troubled = nil, q.troubled
			continue
		case <-troubled:
			trouble, troubled = time.After(patience), nil
			continue
		case <-q.done:
		case <-ctx.Done():
		case <-trouble:
		case <-silence.C:
		}
		return
	}
}

// inTrouble and answered tell Close about the receiver.
func (q *Queue) inTrouble(error) {
	select {
	case q.troubled <- struct{}{}:
	default:
	}
}

func (q *Queue) answered() {
	select {
	case <-q.troubled:
	default:
	}
	select {
	case q.taken <- struct{}{}:
	default:
	}
}

func (q *Queue) run() {
	defer close(q.done)
	for {
		var batch Batch
		select {
		case r := <-q.in:
			batch.Add(r)
		case <-q.closed:
			return
		}
		q.collect(&batch)
		dropped, err := Deliver(q.ctx, q.sink, batch.Records, q.inTrouble)
		q.answered()
		q.report.Sent += len(batch.Records) - dropped
		q.report.Dropped += dropped
		if err != nil {
			q.report.Err = err
		}
	}
}

// collect waits a moment for more records.
func (q *Queue) collect(batch *Batch) {
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for !batch.IsFull() {
		select {
		case r := <-q.in:
			batch.Add(r)
		case <-timer.C:
			return
		case <-q.closed:
			return
		}
	}
}

// Deliver sends records until they are taken, refused for good, or ctx ends. It returns how many
// were not taken, and why. trouble, if not nil, is called with each error after which it tries
// again.
func Deliver(ctx context.Context, sink Sink, records []audit.Record, trouble func(error)) (dropped int, err error) {
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		dropped, err = sink.Send(ctx, records)
		if !errdefs.Is(err, errdefs.Unavailable) {
			return dropped, err
		}
		if trouble != nil {
			trouble(err)
		}
		wait := pause
		if l, ok := errors.AsType[later](err); ok {
			wait = max(wait, l.after)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return len(records), err
		}
	}
}
