package service

import (
	"context"

	"github.com/agentfense/agentfense/internal/codebase"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/store"
	"github.com/agentfense/agentfense/internal/supervise"
)

// A command of a caller who may not apply holds the sync of its sandbox: what it
// leaves would else reach the codebase, at its own end or with a command of
// another caller. Which of the processes wrote what cannot be told apart, so all
// of the sandbox's changes wait for Apply. The hold ends when the sandbox does not
// run, so that no process of that caller is left, and has no change.

// holdFor holds the sync of sb before the caller runs something in it, unless the
// caller may apply. A linked codebase has no sync.
func (s *Service) holdFor(ctx context.Context, sb *sandbox.Sandbox) error {
	if callerOf(ctx).Scopes&store.ScopeApply != 0 {
		return nil
	}
	files, err := s.codebases.Get(codebase.ID(sb.Record().Served.CodebaseID))
	if err != nil {
		return err
	}
	if _, linked := files.Linked(); linked {
		return nil
	}
	defer s.syncs.lock(string(sb.ID()))() // a sync under way does not see what comes now
	return sb.HoldSync()
}

// releaseUnused ends the hold of a sandbox that does not run and has no change.
// The caller has locked lives.
func (s *Service) releaseUnused(ctx context.Context, sb *sandbox.Sandbox) error {
	held, err := sb.IsSyncHeld()
	if !held || err != nil {
		return err
	}
	if _, err := supervise.Dial(ctx, sb.Dir()); !fault.Is(err, fault.NotFound) {
		return err
	}
	changed, err := sb.HasChanges()
	if changed || err != nil {
		return err
	}
	return sb.ReleaseSync()
}

// released is releaseUnused after an apply or a discard.
func (s *Service) released(ctx context.Context, sb *sandbox.Sandbox) error {
	defer s.lives.lock(string(sb.ID()))()
	return s.releaseUnused(ctx, sb)
}
