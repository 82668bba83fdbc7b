package service

import (
	"context"
	"sync"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/server/codebase"
	"github.com/agentfense/agentfense/internal/server/store"
)

// A command of a caller who may not apply holds the sync of its sandbox: what it
// leaves would else reach the codebase, at its own end or with a command of
// another caller. Which of the processes wrote what cannot be told apart, so all
// of the sandbox's changes wait for Apply. The hold ends when the sandbox does not
// run, so that no process of that caller is left, and has no change. It does not
// end while such a caller is about to run something: another call may stop the
// sandbox and start it again before that begins.

// holdFor holds the sync of sb before the caller runs something in it, at least
// until done is called, unless the caller may apply. A linked codebase has no sync.
func (s *Service) holdFor(ctx context.Context, sb *record.Sandbox) (done func(), err error) {
	none := func() { /* nothing is held */ }
	if callerOf(ctx).Scopes&store.ScopeApply != 0 {
		return none, nil
	}
	files, err := s.codebases.Get(codebase.ID(sb.Record().Served.CodebaseID))
	if err != nil {
		return none, err
	}
	if _, linked := files.Linked(); linked {
		return none, nil
	}
	defer s.syncs.lock(string(sb.ID()))() // a sync under way does not see what comes now
	if err := sb.HoldSync(); err != nil {
		return none, err
	}
	return s.holders.add(sb.ID()), nil
}

// holders counts the calls under way that hold a sandbox's sync.
type holders struct {
	mu sync.Mutex
	of map[record.ID]int
}

func (h *holders) add(id record.ID) (remove func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of == nil {
		h.of = map[record.ID]int{}
	}
	h.of[id]++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.of[id]--; h.of[id] == 0 {
			delete(h.of, id)
		}
	}
}

func (h *holders) any(id record.ID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.of[id] > 0
}

// releaseUnused ends the hold of a sandbox that does not run and has no change.
// The caller has locked lives.
func (s *Service) releaseUnused(ctx context.Context, sb *record.Sandbox) error {
	held, err := sb.IsSyncHeld()
	if !held || err != nil {
		return err
	}
	if _, err := api.Dial(ctx, sb.Dir()); !errdefs.Is(err, errdefs.NotFound) {
		return err
	}
	changed, err := review.HasChanges(sb)
	if changed || err != nil {
		return err
	}
	defer s.syncs.lock(string(sb.ID()))()
	if s.holders.any(sb.ID()) {
		return nil
	}
	return sb.ReleaseSync()
}

// released is releaseUnused after an apply or a discard.
func (s *Service) released(ctx context.Context, sb *record.Sandbox) error {
	defer s.lives.lock(string(sb.ID()))()
	return s.releaseUnused(ctx, sb)
}
