package audit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// WriterOptions are the options of a Writer.
type WriterOptions struct {
	// QueueBytes is the size of the queue; 0 means 4 MiB. One event of any size fits into
	// an empty queue.
	QueueBytes int
	// OnFailure is called from the Writer's goroutine when a write fails for the first
	// time. The events stay in the queue, and the Writer tries again.
	OnFailure func(error)
	// OnRecovery is called when all events were written after OnFailure.
	OnRecovery func()
}

const (
	defaultQueueBytes = 4 << 20
	maxBatch          = 1 << 20                 // bytes that go into one write
	syncInterval      = time.Second             // a record is durable after at most this time
	firstRetry        = 50 * time.Millisecond   // after a failed write
	lastRetry         = 2000 * time.Millisecond // doubled up to this
)

// Writer writes to a Log from its own goroutine, so that callers never wait for a disk. If
// the queue is full, Enqueue returns an error and counts the event. The caller then denies
// or stops the reported action (fail closed), and a gap record says how many events are
// missing.
type Writer struct {
	log     *Log
	options WriterOptions
	wake    chan struct{} // has a token if the queue is not empty
	ended   chan struct{} // closed when the goroutine has ended
	stop    chan struct{} // closed when it must not try again

	mu      sync.Mutex
	queue   []queued
	bytes   int
	dropped uint64 // events refused since the last write
	closed  bool
	failure error // of the last write
}

// queued is a waiting event.
type queued struct {
	encoded
	done chan<- error // gets the result; nil if no caller waits
}

// size returns the size of a waiting event, in bytes.
func (e encoded) size() int { return len(e.body) + 128 }

// NewWriter starts a Writer on log. The caller closes log after Close of the Writer.
func NewWriter(log *Log, o WriterOptions) *Writer {
	if o.QueueBytes == 0 {
		o.QueueBytes = defaultQueueBytes
	}
	w := &Writer{
		log: log, options: o,
		wake: make(chan struct{}, 1), ended: make(chan struct{}), stop: make(chan struct{}),
	}
	go w.run()
	return w
}

// Enqueue queues ev and returns without waiting. Errors: Exhausted if the queue is full;
// Precondition after Close; Invalid as from Log.Append.
func (w *Writer) Enqueue(ev Event) error { return w.enqueue(ev, nil) }

// Append queues ev and returns when it and all events queued before it are written, as
// Log.Append. Errors: as Enqueue; Canceled or Deadline if ctx ended first; ev may still be
// written.
func (w *Writer) Append(ctx context.Context, ev Event) error {
	done := make(chan error, 1)
	if err := w.enqueue(ev, done); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	kind := errdefs.Canceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		kind = errdefs.Deadline
	}
	return errdefs.New(kind, "append to audit log: %w", ctx.Err())
}

func (w *Writer) enqueue(ev Event, done chan<- error) error {
	e, err := encode(ev, w.log.options.Now())
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errdefs.New(errdefs.Precondition, "append to audit log: closed")
	}
	if w.bytes > 0 && w.bytes+e.size() > w.options.QueueBytes {
		w.dropped++
		if w.failure != nil {
			return errdefs.New(errdefs.Exhausted, "audit queue is full: %w", w.failure)
		}
		return errdefs.New(errdefs.Exhausted, "audit queue is full")
	}
	w.queue = append(w.queue, queued{e, done})
	w.bytes += e.size()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return nil
}

// Close writes the queued events and ends the goroutine. It gives up if writes fail until
// ctx ends. Errors: Exhausted or another error of the last write; the events are then lost.
// Closing again does nothing.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	again := w.closed
	w.closed = true
	w.mu.Unlock()
	if again {
		<-w.ended
		return nil
	}
	close(w.wake)
	select {
	case <-w.ended:
	case <-ctx.Done():
		close(w.stop)
		<-w.ended
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.queue); n > 0 {
		w.log.noteLost(uint64(n), w.failure)
		return errdefs.New(errdefs.KindOf(w.failure), "close audit log: %d events are lost: %w", n, w.failure)
	}
	return w.log.Sync()
}

func (w *Writer) run() {
	defer close(w.ended)
	var due <-chan time.Time // set while a record is not durable
	for {
		select {
		case _, open := <-w.wake:
			if !w.drain() || !open {
				return
			}
			if due == nil && w.log.unsynced() {
				due = time.After(syncInterval)
			}
		case <-due:
			due = nil
			if err := w.log.Sync(); err != nil {
				w.report(err)
			}
			if w.log.unsynced() {
				due = time.After(syncInterval)
			}
		}
	}
}

// drain writes until the queue is empty. It returns false if it gave up.
func (w *Writer) drain() bool {
	retry := firstRetry
	for {
		batch, dropped := w.next()
		if len(batch) == 0 && dropped == 0 {
			return true
		}
		if dropped > 0 {
			w.log.noteLost(dropped, errQueueFull)
		}
		done, err := w.log.append(encodedOf(batch))
		w.finish(batch, done, err)
		if done < len(batch) {
			select {
			case <-time.After(retry):
				retry = min(2*retry, lastRetry)
			case <-w.stop:
				return false
			}
			continue
		}
		retry = firstRetry
	}
}

var errQueueFull = errdefs.New(errdefs.Exhausted, "audit queue is full")

// next returns the events for one write. It does not remove them, so that events that
// cannot be written stay in the queue.
func (w *Writer) next() (batch []queued, dropped uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	size := 0
	for i, q := range w.queue {
		size += q.size()
		if i > 0 && size > maxBatch {
			break
		}
		batch = w.queue[:i+1]
	}
	dropped, w.dropped = w.dropped, 0
	return batch, dropped
}

func encodedOf(batch []queued) []encoded {
	events := make([]encoded, len(batch))
	for i, q := range batch {
		events[i] = q.encoded
	}
	return events
}

// finish removes the first done events of batch from the queue and reports their results.
// If all were written, err is the error of a sync, which their callers get, too.
func (w *Writer) finish(batch []queued, done int, err error) {
	for _, q := range batch[:done] {
		if q.done == nil {
			continue
		}
		if done == len(batch) {
			q.done <- err
		} else {
			q.done <- nil
		}
	}
	w.mu.Lock()
	for _, q := range batch[:done] {
		w.bytes -= q.size()
	}
	w.queue = slices.Delete(w.queue, 0, done)
	w.mu.Unlock()
	w.report(err)
}

// report calls OnFailure and OnRecovery.
func (w *Writer) report(err error) {
	w.mu.Lock()
	before := w.failure
	w.failure = err
	w.mu.Unlock()
	switch {
	case err != nil && before == nil && w.options.OnFailure != nil:
		w.options.OnFailure(err)
	case err == nil && before != nil && w.options.OnRecovery != nil:
		w.options.OnRecovery()
	}
}
