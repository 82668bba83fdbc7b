package remote

import (
	"context"
	"errors"
	"time"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

// Stop ends a sandbox if it runs. How long that may take the server decides.
func (b *Backend) Stop(ctx context.Context, name string, o backend.StopOptions) (backend.Stopped, error) {
	switch {
	case o.Force:
		return backend.Stopped{}, localOnly("force")
	case o.Timeout != nil:
		return backend.Stopped{}, localOnly("timeout")
	}
	sb, err := b.Sandbox(ctx, name)
	if err != nil || sb.Status != record.Running {
		return backend.Stopped{}, err
	}
	return backend.Stopped{Name: sb.Record.Name}, b.Client.Stop(ctx, string(sb.Record.ID))
}

// Remove destroys a sandbox, with what was uploaded for it.
func (b *Backend) Remove(ctx context.Context, name string, how backend.Removal) (backend.Removed, error) {
	sb, err := b.Sandbox(ctx, name)
	switch {
	case how == backend.RemoveForced && errdefs.Is(err, errdefs.NotFound):
		return backend.Removed{}, nil
	case err != nil:
		return backend.Removed{}, err
	case how != backend.RemoveEmpty:
	case sb.Status == record.Running:
		return backend.Removed{}, errdefs.New(errdefs.Precondition, "sandbox %s: running; %s", sb.Record.Name, backend.StopFirst(sb.Record.Name))
	default:
		pending, err := b.pending(ctx, sb)
		if err == nil {
			pending, err = b.withoutPresent(ctx, sb, pending)
		}
		if err == nil {
			err = backend.RefusePending(sb.Record.Name, pending)
		}
		if err == nil {
			err = b.refuseSnapshots(ctx, sb)
		}
		if err != nil {
			return backend.Removed{}, err
		}
	}
	if err := b.Destroy(ctx, string(sb.Record.ID)); err != nil {
		return backend.Removed{}, err
	}
	return backend.Removed{Name: sb.Record.Name, ID: sb.Record.ID}, b.forgetUpload(ctx, sb)
}

// pending counts what is lost with a sandbox, also of its mounts.
func (b *Backend) pending(ctx context.Context, sb backend.Sandbox) (review.Pending, error) {
	workspace, err := b.Review(ctx, sb, nil, true, "")
	if err != nil {
		return review.Pending{}, err
	}
	all := review.PendingOf(workspace.Files())
	all.Branches = sb.UnsavedBranches
	mounts, err := b.inMounts(ctx, sb)
	for _, m := range mounts {
		p := review.PendingOf(m.Files)
		all.Changes += p.Changes
		all.LeftOut += p.LeftOut
		all.InMounts += p.Changes
	}
	return all, err
}

// withoutPresent returns p without what the source has already, which only the server knows.
func (b *Backend) withoutPresent(ctx context.Context, sb backend.Sandbox, p review.Pending) (review.Pending, error) {
	if p.Changes == 0 {
		return p, nil
	}
	all, err := b.list(ctx, &sandboxv1.ListSandboxesRequest{Name: sb.Record.Name, WithUsage: true})
	if errdefs.Is(err, errdefs.Unsupported) {
		return p, nil // the server is too old to tell
	}
	for _, s := range all {
		if s.Record.ID != sb.Record.ID || s.Usage == nil || s.Usage.More {
			continue
		}
		p.Changes = min(p.Changes, max(s.Usage.Changes-s.UnsavedBranches, 0))
		p.LeftOut, p.InMounts = min(p.LeftOut, p.Changes), min(p.InMounts, p.Changes)
	}
	return p, err
}

// forgetUpload removes what is left of the upload of a sandbox that is gone: what this
// host remembers of the directory, and the uploaded copy. The copy stays where the
// server synchronises changes into it, which the directory may lack.
func (b *Backend) forgetUpload(ctx context.Context, sb backend.Sandbox) error {
	upload, err := b.uploadOf(sb)
	if err != nil || upload == nil {
		return err
	}
	if err := upload.Forget(); err != nil {
		return err
	}
	if sync := sb.Record.Served.Sync; sync != "" && sync != config.SyncManual {
		return nil
	}
	return b.deleteUpload(ctx, upload.CodebaseID())
}

// deleteUpload deletes an uploaded copy, unless another sandbox is made of it.
func (b *Backend) deleteUpload(ctx context.Context, codebase string) error {
	err := b.DeleteCodebase(context.WithoutCancel(ctx), codebase)
	if errdefs.Is(err, errdefs.Precondition) {
		return nil
	}
	return err
}

// Unused lists the sandboxes that may be removed.
func (b *Backend) Unused(ctx context.Context, o backend.UnusedOptions) ([]backend.Unused, error) {
	all, err := b.Sandboxes(ctx, false)
	if err != nil {
		return nil, err
	}
	var errs []error
	list := []backend.Unused{}
	for _, sb := range all {
		r := sb.Record
		used := r.CreatedAt
		if r.Served != nil && r.Served.StoppedAt.After(used) {
			used = r.Served.StoppedAt
		}
		if sb.Status == record.Running || time.Since(used) < o.Older {
			continue
		}
		pending, err := b.pending(ctx, sb)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		holds := backend.HoldsOf(pending.Changes, r.Home)
		if has, err := b.hasSnapshots(ctx, sb); err != nil {
			errs = append(errs, err)
			continue
		} else if has {
			holds.Some = true
		}
		if !holds.Nothing() && !o.Force {
			continue
		}
		list = append(list, backend.Unused{Name: r.Name, Holds: holds, Remove: func(ctx context.Context) error {
			destroy := b.DestroyUnused
			if o.Force {
				destroy = b.Destroy
			}
			if err := destroy(ctx, string(r.ID)); err != nil {
				return err
			}
			return b.forgetUpload(ctx, sb)
		}})
	}
	return list, errors.Join(errs...)
}

// RemoveUnused destroys a sandbox in which nothing waits to be applied.
func (b *Backend) RemoveUnused(ctx context.Context, sb backend.Sandbox) (left backend.Left, err error) {
	ctx = context.WithoutCancel(ctx)
	waiting, err := b.pending(ctx, sb)
	if err != nil {
		return left, err
	}
	if left.HasChanges = waiting.Changes > 0; left.HasChanges {
		return left, nil
	}
	if left.Synced, err = (&serverChanges{b: b, sb: sb}).Synced(ctx); err != nil {
		return left, err
	}
	err = b.Client.Audit(ctx, string(sb.Record.ID), 0, false, func(r audit.Record) error {
		_, is := r.Event.(audit.PermissionDenied)
		left.Refused = left.Refused || is
		return nil
	})
	if err != nil {
		return left, err
	}
	err = b.DestroyUnused(ctx, string(sb.Record.ID))
	if errdefs.Is(err, errdefs.Precondition) { // somebody else uses it, or has changed something
		left.InUse = true
		return left, nil
	}
	if err != nil {
		return left, err
	}
	return left, b.forgetUpload(ctx, sb)
}
