package local

import (
	"context"
	"errors"
	"time"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/board"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/held"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
	"github.com/agentfense/agentfense/internal/sandbox/supervise"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
)

// Stop ends a sandbox if it runs and waits until it has let its lock go.
func (b *Backend) Stop(ctx context.Context, name string, o backend.StopOptions) (backend.Stopped, error) {
	sb, err := b.open(name)
	if err != nil {
		return backend.Stopped{}, err
	}
	return stop(ctx, sb, o)
}

func stop(ctx context.Context, sb *record.Sandbox, o backend.StopOptions) (s backend.Stopped, err error) {
	s = backend.Stopped{Name: sb.Name(), Patience: supervise.StopPatience}
	switch {
	case o.Force:
		s.Patience = time.Second
	case o.Timeout != nil:
		s.Patience = *o.Timeout
	}
	began := time.Now()
	s.Killed, err = supervise.End(ctx, sb, s.Patience)
	s.Silent = time.Since(began) < s.Patience
	return s, err
}

// Remove removes a sandbox. A damaged one has no name and no id.
func (b *Backend) Remove(ctx context.Context, name string, how backend.Removal) (backend.Removed, error) {
	sb, err := b.home.Open(name)
	var r backend.Removed
	var check func(*record.Sandbox) error
	switch {
	case how == backend.RemoveForced && errdefs.Is(err, errdefs.NotFound):
		return r, nil
	case err != nil: // damaged ones can be removed too
	case how == backend.RemoveEmpty:
		if err := launch.Cleanup(sb); err != nil {
			return r, err
		}
	}
	if how == backend.RemoveEmpty {
		check = func(sb *record.Sandbox) error { return b.checkPending(ctx, name, sb) }
	}
	if sb != nil {
		_ = apply.RecoverSources(sb, nil) // the history has it, also after the removal
	}
	remove := func() error { return b.removeIf(name, check) }
	if sb != nil && how == backend.RemoveForced {
		err = removeStopped(func() (err error) {
			r.Stopped, err = stop(ctx, sb, backend.StopOptions{})
			return err
		}, remove)
	} else {
		err = remove()
	}
	if err != nil || sb == nil {
		return r, err
	}
	r.Name, r.ID, r.LogHere = sb.Name(), sb.ID(), true
	return r, nil
}

// removalTries is how often removeStopped stops and removes, and removalPause how long it
// waits in between. A supervisor that a killed command left may still be starting, and
// takes the sandbox after the first look. More come only from somebody who starts them.
const (
	removalTries = 10
	removalPause = 20 * time.Millisecond
)

// removeStopped stops a sandbox and removes it, and does so again if a supervisor has
// taken it in between.
func removeStopped(stop, remove func() error) error {
	for n := 1; ; n++ {
		if err := stop(); err != nil {
			return err
		}
		err := remove()
		if held := (*record.HeldError)(nil); n == removalTries || !errors.As(err, &held) || !mayBeSupervisor(held.Owner) {
			return err
		}
		time.Sleep(removalPause)
	}
}

// mayBeSupervisor says that a supervisor holds a sandbox, or a process that has not
// written yet what it is.
func mayBeSupervisor(o record.Owner) bool {
	return o.Purpose == record.PurposeSupervise || o.PID == 0
}

// PendingVerb is the hidden verb that is CheckPending, run where files that are closed
// to their owner are open to us.
const PendingVerb = "__pending"

// CheckPending refuses a sandbox with changes that were not applied. Errors:
// Precondition.
func (b *Backend) CheckPending(ctx context.Context, name string) error {
	sb, err := b.open(name)
	if err != nil {
		return err
	}
	return b.checkPending(ctx, name, sb)
}

// checkPending refuses to remove a sandbox with changes that were not applied, or
// one of which nobody can tell. sb is nil if its record is damaged.
func (b *Backend) checkPending(ctx context.Context, name string, sb *record.Sandbox) error {
	if sb == nil {
		return errdefs.New(errdefs.Precondition, "sandbox %[1]s: its record is damaged, so changes that were not applied cannot be counted; to remove it with all it holds: agentfense rm --force %[1]s", vpath.Escape(name))
	}
	if err := b.asOwner(ctx, sb, []string{PendingVerb, sb.Name()}); err != nil {
		if done, ok := errors.AsType[*backend.DoneError](err); ok && done.Code == 0 {
			return nil
		}
		return err
	}
	pending, err := review.CountPending(sb)
	if err != nil {
		return errdefs.New(errdefs.KindOf(err), "%w; to remove it with all it holds: agentfense rm --force %s", err, sb.Name())
	}
	if err := backend.RefusePending(sb.Name(), pending); err != nil {
		return err
	}
	l, err := snapshot.Read(sb)
	if err != nil {
		return errdefs.New(errdefs.KindOf(err), "%w; to remove it with all it holds: agentfense rm --force %s", err, sb.Name())
	}
	if l.Asked() > 0 {
		return backend.ErrHasSnapshots(sb.Name())
	}
	return nil
}

// removeIf removes a sandbox unless check refuses, and what killed commands have left
// of others.
func (b *Backend) removeIf(name string, check func(*record.Sandbox) error) error {
	err := b.home.RemoveIf(name, check)
	if held := (*record.HeldError)(nil); errors.As(err, &held) && held.Owner.Purpose == record.PurposeSupervise {
		return errdefs.New(errdefs.KindOf(err), "%w; %s", err, backend.StopFirst(name))
	}
	return errors.Join(err, launch.SweepHome(b.home), snapshot.Sweep(b.home), board.Sweep(b.home))
}

// Unused lists the sandboxes that may be removed. A server's are left to it.
func (b *Backend) Unused(_ context.Context, o backend.UnusedOptions) ([]backend.Unused, error) {
	all, damaged := b.home.List()
	errs := []error{damaged}
	list := []backend.Unused{}
	for _, sb := range all {
		_, locked, err := sb.Holder()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if locked || sb.Record().Served != nil || time.Since(held.LastUsed(sb)) < o.Older {
			continue
		}
		holds, err := holdsOf(sb)
		switch {
		case err != nil && !o.Force:
			errs = append(errs, err)
			continue
		case err != nil:
			holds = backend.Holds{Unknown: true}
		case !holds.Nothing() && !o.Force:
			continue
		}
		list = append(list, backend.Unused{Name: sb.Name(), Holds: holds, Remove: func(ctx context.Context) error {
			if o.Force {
				return b.removeIf(sb.Name(), nil)
			}
			return b.removeIf(sb.Name(), func(sb *record.Sandbox) error { return b.checkPending(ctx, sb.Name(), sb) })
		}})
	}
	return list, errors.Join(errs...)
}

// holdsOf says what would go with a sandbox.
func holdsOf(sb *record.Sandbox) (backend.Holds, error) {
	if closed, err := isClosed(sb); closed || err != nil {
		return backend.Holds{Some: true}, err
	}
	if l, err := snapshot.Read(sb); err != nil || l.Asked() > 0 {
		return backend.Holds{Some: true}, err
	}
	p, err := review.CountPending(sb)
	return backend.HoldsOf(p.Changes+p.Branches, sb.Record().Home), err
}

// errHasChanges keeps a sandbox from being removed.
var errHasChanges = errors.New("the sandbox has changes")

// RemoveUnused removes a sandbox in which nothing was changed.
func (b *Backend) RemoveUnused(_ context.Context, sb backend.Sandbox) (left backend.Left, err error) {
	left.LogHere = true
	err = b.home.RemoveIf(sb.Record.Name, func(now *record.Sandbox) error {
		if now == nil || now.ID() != sb.Record.ID {
			return errHasChanges // it is another one
		}
		if closed, err := isClosed(now); closed || err != nil {
			return errors.Join(errHasChanges, err)
		}
		if changed, err := review.HasChangesToKeep(now); changed || err != nil {
			return errors.Join(errHasChanges, err)
		}
		return audit.Read(now.AuditPath(), func(r audit.Record) error {
			_, is := r.Event.(audit.PermissionDenied)
			left.Refused = left.Refused || is
			return nil
		})
	})
	held := (*record.HeldError)(nil)
	switch {
	case errors.Is(err, errHasChanges):
		left.HasChanges = true
		return left, nil
	case errors.As(err, &held):
		left.InUse = true
		return left, nil
	}
	return left, err
}
