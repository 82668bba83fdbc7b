// Package auditfeed sends the audit logs of a server's sandboxes to a receiver, while the server
// runs.
//
// The logs are the queue: a Feed remembers up to which record the receiver has taken each log, and
// reads on from there, also after the server was started again. What a receiver does not take now
// is sent later; what it refuses for good is counted and stays in the log. Nobody who writes a log
// waits for it. If the server is killed, what was sent last may be sent again.
//
// Goroutines: the one that calls Run.
package auditfeed

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/audit/export"
)

// interval is how often the logs are looked at.
const interval = time.Second

// Options are those of a Feed.
type Options struct {
	Name string // of the receiver, in the server's log
	Sink export.Sink
	// Logs lists the paths of the logs, of removed sandboxes too. Those of sandboxes without
	// a codebase, which are not the server's, are not sent.
	Logs func() ([]string, error)
	// Positions, if not "", is the file that keeps how far the receiver has taken the logs.
	// Without it only records are sent that are written after the Feed began to run.
	Positions string
	Log       *slog.Logger
	// Tick, if not nil, replaces the clock that says when the logs are looked at.
	Tick <-chan time.Time
}

// Feed sends logs to one receiver.
type Feed struct {
	o        Options
	at       map[string]position // by the name of the log's file
	first    bool                // nothing was looked at before
	unread   map[string]bool     // logs that could not be read when they were first looked at, or lately
	changed  bool                // of at, since it was written
	troubled bool                // what the receiver did not take is in the server's log
}

// New returns a feed that begins where the last one with the same positions ended. Errors:
// Precondition if the file of positions is damaged.
func New(o Options) (*Feed, error) {
	f := &Feed{o: o, at: map[string]position{}, first: true, unread: map[string]bool{}}
	if o.Positions == "" {
		return f, nil
	}
	at, err := readPositions(o.Positions)
	f.at = at
	return f, err
}

// lastPatience is how long a Feed goes on sending after it was told to end.
const lastPatience = 5 * time.Second

// Run sends until ctx ends, and then what was written before, for a few seconds at most. What it is
// sending when ctx ends is not cut off: the receiver may have it already, and would get it twice.
func (f *Feed) Run(ctx context.Context) {
	tick := f.o.Tick
	if tick == nil {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		tick = ticker.C
	}
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastPatience, cancel) })()
	for {
		f.look(sending)
		select {
		case <-tick:
		case <-ctx.Done():
			f.look(sending)
			return
		}
	}
}

// look sends what the logs have.
func (f *Feed) look(ctx context.Context) {
	logs, err := f.o.Logs()
	if err != nil {
		f.o.Log.Warn("the audit logs cannot be listed, and are not sent", "to", f.o.Name, "err", err)
		return
	}
	f.forget(logs)
	for _, path := range logs {
		if f.tryToSend(ctx, path); ctx.Err() != nil {
			break
		}
	}
	f.first = false
	f.keep()
}

// tryToSend is send, and says once of a log that it cannot be read.
func (f *Feed) tryToSend(ctx context.Context, path string) {
	name := filepath.Base(path)
	skip := f.o.Positions == "" && (f.first || f.unread[name])
	err := f.send(ctx, path, skip)
	switch {
	case err == nil:
		delete(f.unread, name)
	case ctx.Err() != nil, errdefs.Is(err, errdefs.NotFound), f.unread[name]:
	default:
		f.unread[name] = true
		f.o.Log.Warn("an audit log cannot be read, and is not sent", "to", f.o.Name, "err", err)
	}
}

// forget drops the positions of logs that are gone.
func (f *Feed) forget(logs []string) {
	is := make(map[string]bool, len(logs))
	for _, path := range logs {
		is[filepath.Base(path)] = true
	}
	for name := range f.at {
		if !is[name] {
			delete(f.at, name)
			delete(f.unread, name)
			f.changed = true
		}
	}
}

// keep writes the positions, if they are to be kept and changed.
func (f *Feed) keep() {
	if f.o.Positions == "" || !f.changed {
		return
	}
	if err := writePositions(f.o.Positions, f.at); err != nil {
		f.o.Log.Warn("how far the audit logs were sent cannot be stored: after a restart some records are sent again", "to", f.o.Name, "err", err)
		return
	}
	f.changed = false
}

// errEnough ends the reading of a log for now.
var errEnough = errors.New("enough was read")

// send sends what a log has beyond its position, or with skip moves the position to its end.
func (f *Feed) send(ctx context.Context, path string, skip bool) error {
	name := filepath.Base(path)
	for ctx.Err() == nil {
		at := f.at[name]
		if at.Over {
			return nil
		}
		info, err := os.Stat(path)
		if err != nil {
			return errdefs.New(errdefs.NotFound, "audit log %s: %w", name, err)
		}
		if info.Size() == at.Offset {
			return nil
		}
		batch, next, err := readBatch(path, at, skip)
		if err != nil {
			return err
		}
		if next == at {
			return nil
		}
		if len(batch.Records) > 0 && !f.deliver(ctx, batch.Records) {
			return nil
		}
		f.at[name], f.changed = next, true
	}
	return nil
}

// readBatch reads records behind a position, and returns where they end. With skip it returns
// the end of the log.
func readBatch(path string, at position, skip bool) (batch export.Batch, next position, err error) {
	next = at
	from := at.Offset
	err = audit.ReadRest(path, from, func(r audit.Record) error {
		if from > 0 && r.Offset == from && r.Seq != at.Seq+1 {
			return errArchived
		}
		next.Offset = r.Offset + int64(len(r.Raw)) + 1
		if r.Seq > 0 && r.CodebaseID == "" {
			next.Over = true
			return errEnough
		}
		if r.Seq > 0 && r.Seq <= at.Seq {
			return nil // sent before the log was archived
		}
		next.Seq = max(next.Seq, r.Seq)
		_, next.Over = r.Event.(audit.SandboxDestroyed)
		if skip {
			return nil
		}
		batch.Add(r)
		if batch.IsFull() {
			return errEnough
		}
		return nil
	})
	switch {
	case errors.Is(err, errEnough):
		return batch, next, nil
	case errors.Is(err, errArchived), errdefs.Is(err, errdefs.Precondition) && from > 0:
		at.Offset = 0
		return readBatch(path, at, skip)
	}
	return batch, next, err
}

// errArchived says that a log does not go on where it ended: its records were archived, and it
// begins anew.
var errArchived = errors.New("the log begins anew")

// deliver sends records until they are taken or refused for good. It returns false if ctx ended
// before.
func (f *Feed) deliver(ctx context.Context, records []audit.Record) bool {
	dropped, err := export.Deliver(ctx, f.o.Sink, records, func(err error) {
		if !f.troubled {
			f.o.Log.Warn("audit records are not taken; they are sent later", "to", f.o.Name, "err", err)
		}
		f.troubled = true
	})
	if ctx.Err() != nil && err != nil {
		return false
	}
	if err != nil {
		f.o.Log.Error("the receiver refused audit records; they stay in the audit log", "to", f.o.Name, "refused", dropped, "err", err)
	} else if f.troubled {
		f.o.Log.Info("audit records are taken again", "to", f.o.Name)
		f.troubled = false
	}
	return true
}
