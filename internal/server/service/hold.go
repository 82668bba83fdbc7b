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

// A command of a caller without the scope apply holds the sync of its sandbox. Otherwise its
// changes would reach the codebase, when it ends or with a command of another caller. The server
// cannot tell which process wrote what, so all changes of the sandbox wait for Apply.
//
// The hold ends when the sandbox is not running, so that no process of that caller is left, and has
// no changes. It does not end while such a caller is about to run a command: another call may stop
// the sandbox and start it again before the command begins.

// holdFor holds the sync of sb, at least until done is called, before a caller without the scope
// apply runs a command in it. A linked codebase has no sync; mounts with rules that keep are held
// as one.
func (s *Service) holdFor(ctx context.Context, sb *record.Sandbox) (done func(), err error) {
	none := func() {}
	if callerOf(ctx).Scopes&store.ScopeApply != 0 {
		return none, nil
	}
	files, err := s.codebases.Get(codebase.ID(sb.Record().Served.CodebaseID))
	if err != nil {
		return none, err
	}
	if _, linked := files.Linked(); linked && len(keepingMounts(sb)) == 0 {
		return none, nil
	}
	defer s.syncs.lock(string(sb.ID()))() // so that no sync is running
	if err := sb.HoldSync(); err != nil {
		return none, err
	}
	return s.holders.add(sb.ID()), nil
}

// holders counts, for each sandbox, the running calls that hold its sync.
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

// releaseUnused ends the hold of a sandbox that is not running and has no changes. The caller holds
// its lock of lives.
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
