package remote

import (
	"context"
	"errors"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
	"github.com/agentfense/agentfense/internal/server/wireconv"
	"github.com/agentfense/agentfense/internal/transfer/stream"
)

// TakeSnapshot makes a snapshot.
func (b *Backend) TakeSnapshot(ctx context.Context, name, label string, _ []string) (snapshot.Snapshot, error) {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return snapshot.Snapshot{}, err
	}
	made, err := b.snapshots.CreateSnapshot(ctx, &sandboxv1.CreateSnapshotRequest{SandboxId: sb.Ref(), Label: label})
	if err != nil {
		return snapshot.Snapshot{}, b.failed(err)
	}
	return wireconv.DecodeSnapshot(made)
}

// SnapshotTree lists the snapshots of a sandbox.
func (b *Backend) SnapshotTree(ctx context.Context, name string) (snapshot.Tree, error) {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return snapshot.Tree{}, err
	}
	return b.snapshotsOf(ctx, sb)
}

func (b *Backend) snapshotsOf(ctx context.Context, sb backend.Sandbox) (snapshot.Tree, error) {
	list, err := b.snapshots.ListSnapshots(ctx, &sandboxv1.ListSnapshotsRequest{SandboxId: string(sb.Record.ID)})
	if err != nil {
		return snapshot.Tree{}, b.failed(err)
	}
	return wireconv.DecodeSnapshots(list)
}

// hasSnapshots reports whether a sandbox has snapshots that somebody asked for. A server that is
// too old for them has none.
func (b *Backend) hasSnapshots(ctx context.Context, sb backend.Sandbox) (bool, error) {
	t, err := b.snapshotsOf(ctx, sb)
	if errdefs.Is(err, errdefs.Unsupported) {
		return false, nil
	}
	l := listOf(&t)
	return l.Asked() > 0, err
}

// refuseSnapshots refuses a sandbox with such snapshots. Errors: Precondition.
func (b *Backend) refuseSnapshots(ctx context.Context, sb backend.Sandbox) error {
	has, err := b.hasSnapshots(ctx, sb)
	if err == nil && has {
		err = backend.ErrHasSnapshots(sb.Record.Name)
	}
	return err
}

func listOf(t *snapshot.Tree) snapshot.List {
	var l snapshot.List
	for _, n := range t.Nodes {
		l.Snapshots = append(l.Snapshots, n.Snapshot)
	}
	return l
}

// RemoveSnapshots removes snapshots, if all of them exist.
func (b *Backend) RemoveSnapshots(ctx context.Context, name string, refs []string) error {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return err
	}
	t, err := b.snapshotsOf(ctx, sb)
	if err != nil {
		return err
	}
	l, known := listOf(&t), map[string]bool{}
	for _, ref := range refs {
		s, err := l.Find(sb.Record.Name, ref)
		if err != nil {
			return err
		}
		known[s.Ref()] = true
	}
	var errs []error
	for ref := range known {
		_, err := b.snapshots.DeleteSnapshot(ctx, &sandboxv1.DeleteSnapshotRequest{SandboxId: string(sb.Record.ID), Snapshot: ref})
		errs = append(errs, b.failed(err))
	}
	return errors.Join(errs...)
}

// Restore brings a sandbox back to a snapshot.
func (b *Backend) Restore(ctx context.Context, name, ref string, rebase bool, _ []string) (snapshot.Restored, error) {
	if rebase {
		return snapshot.Restored{}, localOnly("rebase")
	}
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return snapshot.Restored{}, err
	}
	if sb.Status == record.Running {
		return snapshot.Restored{}, errdefs.New(errdefs.Precondition, "sandbox %s: running; %s", sb.Record.Name, backend.StopFirst(sb.Record.Name))
	}
	done, err := b.snapshots.RestoreSnapshot(ctx, &sandboxv1.RestoreSnapshotRequest{SandboxId: string(sb.Record.ID), Snapshot: ref})
	if err != nil {
		return snapshot.Restored{}, b.failed(err)
	}
	return wireconv.DecodeRestored(done)
}

// Fork makes sandboxes that begin with a state of another one. What this host remembers of the
// directory that was uploaded it remembers for them, too.
func (b *Backend) Fork(ctx context.Context, name, ref string, names []string, rules *backend.Rules, rebase bool, _ []string) ([]backend.Sandbox, error) {
	if rebase {
		return nil, localOnly("rebase")
	}
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return nil, err
	}
	r := &sandboxv1.ForkSandboxRequest{SandboxId: string(sb.Record.ID), Snapshot: ref, Names: names}
	if rules != nil {
		sent, err := wireconv.EncodeRules(rules.Rules)
		if err != nil {
			return nil, err
		}
		r.Rules, r.AllowWider = &sandboxv1.ForkRules{Permissions: sent}, rules.Grants
	}
	upload, err := b.uploadOf(sb)
	if err != nil {
		return nil, err
	}
	answer, err := b.snapshots.ForkSandbox(ctx, r)
	if err != nil {
		return nil, b.failed(err)
	}
	var forks []backend.Sandbox
	for _, m := range answer.Sandboxes {
		fork, err := sandboxOf(m)
		if err != nil {
			return forks, err
		}
		forks = append(forks, fork)
		if upload == nil {
			continue
		}
		if err := upload.RememberFork(fork.Record.ID, fork.Record.Rules); err != nil {
			return forks, err
		}
	}
	return forks, nil
}

// Compare shows how two states differ.
func (b *Backend) Compare(ctx context.Context, earlier, later, mount string, paths []vpath.Path, _ []string) (*backend.Compared, error) {
	from, fromRef, err := b.stateOf(ctx, earlier)
	if err != nil {
		return nil, err
	}
	to, toRef, err := b.stateOf(ctx, later)
	if err != nil {
		return nil, err
	}
	r := &sandboxv1.CompareStatesRequest{
		SandboxId: string(to.Record.ID), State: toRef, FromSandboxId: string(from.Record.ID), FromState: fromRef,
		Mount: mount, Paths: wireconv.EncodeSelection(paths),
	}
	var files []*sandboxv1.FileDiff
	for {
		page, err := b.snapshots.CompareStates(ctx, r)
		if err != nil {
			return nil, b.failed(err)
		}
		files = append(files, page.Files...)
		if r.PageToken, err = stream.NextPage(r.PageToken, page.NextPageToken); err != nil {
			return nil, err
		}
		if r.PageToken == "" {
			break
		}
	}
	to.Record.Name, to.Mount = earlier+".."+later, mount
	found, err := reviewOf(to, "", files, nil)
	if err != nil {
		return nil, err
	}
	return &backend.Compared{Review: found, Close: func() error { return nil }}, nil
}

// stateOf finds the sandbox of a state, NAME or NAME@SNAPSHOT.
func (b *Backend) stateOf(ctx context.Context, text string) (sb backend.Sandbox, ref string, err error) {
	name, ref, err := snapshot.SplitRef(text)
	if err == nil {
		sb, err = b.Sandbox(ctx, name)
	}
	return sb, ref, err
}
