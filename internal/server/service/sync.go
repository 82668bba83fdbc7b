package service

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/server/codebase"
	"github.com/agentfense/agentfense/internal/server/store"
)

// syncOf returns when a sandbox's changes reach its codebase.
func (s *Service) syncOf(sb *record.Sandbox) config.Sync {
	return cmp.Or(sb.Record().Served.Sync, s.config.Sandbox.Sync)
}

// syncAfter syncs a sandbox's changes after the end of a command. It returns the conflicts.
func (s *Service) syncAfter(ctx context.Context, j *job) ([]vpath.Path, error) {
	if s.syncOf(j.sandbox) != config.SyncOnExec {
		return nil, nil
	}
	changed, err := j.client.HasChanges(ctx)
	switch {
	case errdefs.Is(err, errdefs.NotFound), errdefs.Is(err, errdefs.Unavailable):
		return nil, nil // stopped meanwhile: the stop syncs
	case err != nil || !changed:
		return nil, err
	}
	return s.sync(ctx, j.sandbox, j.client)
}

// syncStopped is syncAfter and keepAfter for a sandbox that was stopped.
func (s *Service) syncStopped(ctx context.Context, sb *record.Sandbox) error {
	s.keepAfter(ctx, sb)
	if err := s.releaseUnused(ctx, sb); err != nil || s.syncOf(sb) == config.SyncManual {
		return err
	}
	changed, err := review.HasChanges(sb)
	if err != nil || !changed {
		return err
	}
	_, err = s.sync(ctx, sb, nil)
	return err
}

// sync applies a sandbox's changes to its codebase, removes them from the delta, and notifies the
// other sandboxes, unless the sync is held. It returns the conflicts: paths that others changed
// too, and those that stay in the sandbox. client is nil if the sandbox is not running.
func (s *Service) sync(ctx context.Context, sb *record.Sandbox, client *api.Client) ([]vpath.Path, error) {
	return untilAtRest(func() (synced, error) {
		defer s.syncs.lock(string(sb.ID()))()
		if held, err := sb.IsSyncHeld(); held || err != nil {
			return synced{}, err
		}
		return s.syncOnce(ctx, sb, client)
	})
}

// synced is what became of paths that were not simply synced over.
type synced struct {
	overwrote, left []vpath.Path
	busy            bool // some are left because the sandbox is writing to one
}

// How often a sync tries a file that the sandbox is writing to, and the first pause; each further
// pause is twice as long.
const (
	busyTries = 5
	busyPause = 10 * time.Millisecond
)

// untilAtRest repeats a sync while the sandbox is writing to files that it copies. Files that are
// still busy then stay in the sandbox; the command that writes them syncs them at its end. That is
// no error for the command that has just ended.
func untilAtRest(sync func() (synced, error)) (conflicts []vpath.Path, err error) {
	pause := busyPause
	for try := 1; ; try++ {
		c, err := sync()
		conflicts = append(conflicts, c.overwrote...)
		if err != nil || !c.busy || try == busyTries {
			conflicts = append(conflicts, c.left...)
			slices.Sort(conflicts)
			return slices.Compact(conflicts), err
		}
		time.Sleep(pause)
		pause *= 2
	}
}

// syncOnce is one try of sync.
func (s *Service) syncOnce(ctx context.Context, sb *record.Sandbox, client *api.Client) (c synced, err error) {
	files, err := s.codebases.Get(codebase.ID(sb.Record().Served.CodebaseID))
	if err != nil {
		return c, err
	}
	if _, linked := files.Linked(); linked {
		return c, nil // only Apply changes it
	}
	o := apply.Options{OnConflict: conflict.Overwrite}
	if s.config.Sandbox.OnConflict == config.ConflictRefuse {
		o.OnConflict = conflict.Leave
	}
	if client != nil {
		o.Drop = func(v []changes.Version) ([]vpath.Path, error) { return client.Drop(ctx, "", v) }
	}
	result, err, tellErr := s.applyAndTell(ctx, files, sb, o)
	for _, p := range result.Paths {
		switch {
		case p.Outcome == apply.Conflict, p.Outcome == apply.Failed, p.Outcome == apply.Skipped:
			c.left = append(c.left, p.Path)
		case p.Overwrote:
			c.overwrote = append(c.overwrote, p.Path)
		}
	}
	switch {
	case errors.Is(err, apply.ErrBusy):
		s.log.InfoContext(ctx, "sync: files are being written", "sandbox", sb.ID(), "err", err)
		c.busy, err = true, nil
	case errdefs.Is(err, errdefs.Denied):
		// A command made files unreadable for the server's user. They stay in the sandbox; the
		// other changes were applied.
		s.log.WarnContext(ctx, "sync: cannot read all files", "sandbox", sb.ID(), "err", err)
		err = nil
	}
	return c, errors.Join(err, tellErr)
}

// tellAtOnce is the number of supervisors that are notified concurrently.
const tellAtOnce = 8

// answerPatience is how long a call waits for the supervisor of another sandbox. One that takes
// longer was stopped (SIGSTOP) or is swapped out.
const answerPatience = 10 * time.Second

// tell notifies the sandboxes of a codebase, except one, of changed paths. When it returns, their
// views show the changes.
func (s *Service) tell(ctx context.Context, id codebase.ID, except record.ID, paths []vpath.Path) error {
	if len(paths) == 0 {
		return nil
	}
	g, ctx := errgroup.WithContext(context.WithoutCancel(ctx))
	g.SetLimit(tellAtOnce)
	page := store.Page{Size: s.config.Limits.MaxPageSize}
	for {
		entries, next, err := s.store.Sandboxes(ctx, store.SandboxFilter{CodebaseID: id}, page)
		if err != nil {
			return errors.Join(err, g.Wait())
		}
		for _, entry := range entries {
			if entry.ID == except {
				continue
			}
			g.Go(func() error { return s.tellOne(ctx, entry, paths) })
		}
		if next == "" {
			return g.Wait()
		}
		page.Token = next
	}
}

// tellOne is tell for one sandbox. A sandbox that is not running needs no notification.
func (s *Service) tellOne(ctx context.Context, entry store.Sandbox, paths []vpath.Path) error {
	sb, err := s.open(ctx, entry)
	if errdefs.Is(err, errdefs.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	client, err := api.Dial(bounded, sb.Dir())
	if err == nil {
		err = client.Invalidate(bounded, paths)
	}
	switch {
	case api.IsSilent(err), bounded.Err() != nil && ctx.Err() == nil:
		// It serves no request now, and gets the notification before the next one.
		s.log.WarnContext(ctx, "supervisor does not answer; not waiting for it", "sandbox", sb.ID())
		return nil
	case errdefs.Is(err, errdefs.NotFound), errdefs.Is(err, errdefs.Unavailable):
		return nil
	}
	return err
}

// applyAndTell applies changes of sb to an uploaded codebase and notifies its other sandboxes.
// tellErr is the error of the notification, or of recording the codebase's size.
func (s *Service) applyAndTell(ctx context.Context, files *codebase.Codebase, sb *record.Sandbox, o apply.Options) (result apply.Result, err, tellErr error) {
	counted := files.Change(func() (*codebase.SizeDelta, error) {
		result, err = apply.Changes(ctx, sb, o)
		g := result.Growth
		return &codebase.SizeDelta{FileCount: g.Files, SizeBytes: g.Bytes, DirCount: g.Dirs}, nil
	})
	failpoint.At("sync: applied")
	var applied []vpath.Path
	for _, p := range result.Paths {
		if p.Outcome == apply.Applied {
			applied = append(applied, p.Path)
		}
	}
	return result, err, errors.Join(counted, s.tell(ctx, files.ID(), sb.ID(), applied))
}
