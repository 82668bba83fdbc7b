package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"strings"
	"time"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// Change is one path that a sandbox changed.
type Change struct {
	Path   string
	Status string // "added", "modified", "deleted" or "retyped"
	// Risk is not "" for what could act on the host once applied: "trusted
	// later" or "runs on host"; RiskReason says how.
	Risk, RiskReason string
	SourceChanged    bool   // since the sandbox first changed it: a conflict
	Patch            []byte // unified, as git has it; empty for what is binary or too large
	Binary           bool
}

// words is an enum's value as its word: "CHANGE_STATUS_ADDED" is "added".
func words(prefix, value string) string {
	word := strings.ToLower(strings.TrimPrefix(value, prefix))
	if word == "unspecified" {
		return ""
	}
	return strings.ReplaceAll(word, "_", " ")
}

// Diff is what the sandbox changed, in paths and below them; none: all. What
// could act on the host comes first.
func (s *Sandbox) Diff(ctx context.Context, paths ...string) ([]Change, error) {
	var changes []Change
	for token := ""; ; {
		page, err := s.c.sandboxes.Diff(ctx, &sandboxv1.DiffRequest{SandboxId: s.ID, Paths: paths, PageToken: token})
		if err != nil {
			return nil, fail(ctx, "diff", err)
		}
		for _, f := range page.Files {
			patch := f.PatchBytes
			if len(patch) == 0 {
				patch = []byte(f.Patch)
			}
			changes = append(changes, Change{
				Path: f.Path, Status: words("CHANGE_STATUS_", f.Status.String()), Risk: words("RISK_", f.Risk.String()), RiskReason: f.RiskReason,
				SourceChanged: f.SourceChanged, Patch: patch, Binary: f.Binary,
			})
		}
		if token = page.NextPageToken; token == "" {
			return changes, nil
		}
	}
}

// PathOutcome is what became of one path.
type PathOutcome struct {
	Path    string
	Outcome string // "applied", "present", "kept", "conflict", "refused", "failed" or "skipped"
	Reason  string
}

// Apply carries changes over to the codebase, each file whole or not at all; no
// paths: all changes. What does not come over has its reason in the outcomes.
// Errors: ErrDenied without the scope apply.
func (s *Sandbox) Apply(ctx context.Context, paths ...string) ([]PathOutcome, error) {
	return s.apply(ctx, paths, false)
}

// ApplyDryRun says what Apply would do, and does nothing.
func (s *Sandbox) ApplyDryRun(ctx context.Context, paths ...string) ([]PathOutcome, error) {
	return s.apply(ctx, paths, true)
}

func (s *Sandbox) apply(ctx context.Context, paths []string, dryRun bool) ([]PathOutcome, error) {
	got, err := s.c.sandboxes.Apply(ctx, &sandboxv1.ApplyRequest{SandboxId: s.ID, Paths: paths, DryRun: dryRun})
	if err != nil {
		return nil, fail(ctx, "apply", err)
	}
	outcomes := make([]PathOutcome, len(got.Results))
	for i, r := range got.Results {
		outcomes[i] = PathOutcome{r.Path, words("OUTCOME_", r.Outcome.String()), r.Reason}
	}
	return outcomes, nil
}

// Discard drops changes; no paths: all. It returns what was dropped.
func (s *Sandbox) Discard(ctx context.Context, paths ...string) ([]string, error) {
	got, err := s.c.sandboxes.Discard(ctx, &sandboxv1.DiscardRequest{SandboxId: s.ID, Paths: paths})
	if err != nil {
		return nil, fail(ctx, "discard", err)
	}
	return got.Paths, nil
}

// Event is a record of the audit log.
type Event struct {
	Seq    uint64 // from 1
	Time   time.Time
	Event  string          // "command_executed", "permission_denied", …
	Record json.RawMessage // all of it (docs/audit.md)
}

// Audit yields the records of a sandbox, also of one that is gone. With follow
// it goes on with those to come until ctx ends.
func (s *Sandbox) Audit(ctx context.Context, follow bool, events ...string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := s.c.sandboxes.Audit(ctx, &sandboxv1.AuditRequest{SandboxId: s.ID, Follow: follow, Events: events})
		for err == nil {
			var e *sandboxv1.AuditEvent
			if e, err = stream.Recv(); err == nil && !yield(Event{e.Seq, e.Time.AsTime(), e.Event, json.RawMessage(e.Record)}, nil) {
				return
			}
		}
		if !errors.Is(err, io.EOF) {
			yield(Event{}, fail(ctx, "audit", err))
		}
	}
}

// Stats is what a sandbox uses. Nil is what the host cannot tell.
type Stats struct {
	MemoryBytes, MemoryPeakBytes, PIDs *int64
	CPUTime                            time.Duration
	DeltaBytes, DeltaInodes            int64
	Execs, Sessions                    int
}

// Stats asks for them. Errors: ErrNotRunning.
func (s *Sandbox) Stats(ctx context.Context) (Stats, error) {
	got, err := s.c.sandboxes.GetStats(ctx, &sandboxv1.GetStatsRequest{SandboxId: s.ID})
	if err != nil {
		return Stats{}, fail(ctx, "stats", err)
	}
	return Stats{
		got.MemoryBytes, got.MemoryPeakBytes, got.Pids, got.CpuTime.AsDuration(),
		got.DeltaBytes, got.DeltaInodes, int(got.Execs), int(got.Sessions),
	}, nil
}
