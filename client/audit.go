package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// AuditEvent is a record of the audit log.
type AuditEvent struct {
	Seq    uint64 // from 1
	Time   time.Time
	Event  string          // "command_executed", "permission_denied", …
	Record json.RawMessage // the line of the log, with a hash that can be verified (docs/audit.md); empty if it is too large for a message
}

// Audit yields the records of a sandbox, the oldest first, also if its supervisor is not running.
// It ends with the first error.
func (s *Sandbox) Audit(ctx context.Context, options ...AuditOption) iter.Seq2[AuditEvent, error] {
	o := collect(options)
	request := &sandboxv1.AuditRequest{SandboxId: s.ID, Follow: o.follow, Events: o.events, AfterSeq: o.after}
	if !o.since.IsZero() {
		request.Since = timestamppb.New(o.since)
	}
	return func(yield func(AuditEvent, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := s.c.sandboxes.Audit(ctx, request)
		for err == nil {
			var e *sandboxv1.AuditEvent
			if e, err = stream.Recv(); err == nil && !yield(AuditEvent{e.Seq, timeFrom(e.Time), e.Event, json.RawMessage(e.Record)}, nil) {
				return
			}
		}
		if !errors.Is(err, io.EOF) {
			yield(AuditEvent{}, s.c.fail(ctx, "audit", err))
		}
	}
}

// Stats is what a running sandbox uses. A value that the host does not measure is nil.
type Stats struct {
	MemoryBytes, MemoryPeakBytes, PIDs *int64
	CPUTime                            time.Duration // of all its processes since it was started
	DeltaBytes, DeltaInodes            int64
	Execs, Sessions                    int
	// OOMKills counts processes that were killed because memory ran out, PIDsMaxHits refused forks,
	// since the start.
	OOMKills, PIDsMaxHits int64
	// ViewRequests counts the requests that the view's file system has answered, by kind.
	ViewRequests map[string]uint64
}

// Stats returns what the sandbox uses. Errors: ErrNotRunning.
func (s *Sandbox) Stats(ctx context.Context) (Stats, error) {
	got, err := s.c.sandboxes.GetStats(ctx, &sandboxv1.GetStatsRequest{SandboxId: s.ID})
	if err != nil {
		return Stats{}, s.c.fail(ctx, "stats", err)
	}
	return Stats{
		MemoryBytes: got.MemoryBytes, MemoryPeakBytes: got.MemoryPeakBytes, PIDs: got.Pids, CPUTime: got.CpuTime.AsDuration(),
		DeltaBytes: got.DeltaBytes, DeltaInodes: got.DeltaInodes, Execs: int(got.Execs), Sessions: int(got.Sessions),
		OOMKills: got.OomKills, PIDsMaxHits: got.PidsMaxHits, ViewRequests: got.ViewRequests,
	}, nil
}
