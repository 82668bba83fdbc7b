package local

import (
	"context"
	"errors"
	"slices"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/merge"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/between"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot/freeze"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
)

// orAsOwner is err, with what frees a full disk, or how another process has ended that may read the
// sandbox, if this one may not.
func (b *Backend) orAsOwner(ctx context.Context, sb *record.Sandbox, again []string, err error) error {
	if !errdefs.Is(err, errdefs.Denied) || again == nil {
		return record.ExplainFull(err)
	}
	if other := b.asOwner(ctx, sb, again); other != nil {
		return other
	}
	return err
}

// openOwn opens a sandbox of which the states are changed here. Errors: Precondition for a sandbox
// of a server, which has its own rules for them.
func (b *Backend) openOwn(name string) (*record.Sandbox, error) {
	sb, err := b.open(name)
	if err == nil && sb.Stored.Served != nil {
		return nil, errdefs.New(errdefs.Precondition, "sandbox %s: is managed by a server: add --endpoint", sb.Name())
	}
	return sb, err
}

// withRebase is err, or says what to do if the source is another directory than that of a snapshot.
func withRebase(sb *record.Sandbox, err error) error {
	replaced, is := errors.AsType[*snapshot.ReplacedError](err)
	if !is {
		return err
	}
	if replaced.Snapshot == "" {
		return &backend.ReplacedError{Why: err, Name: sb.Ref()}
	}
	return &backend.ReplacedError{Why: err, Name: sb.Ref(), Advice: "agentfense diff " + sb.Name() + "@" + replaced.Snapshot + " shows the snapshot over the present one"}
}

// withRebasing is err, or says how one of these sandboxes takes the directory that replaced its
// source.
func withRebasing(err error, sandboxes ...*record.Sandbox) error {
	if err == nil {
		return nil
	}
	for _, sb := range sandboxes {
		if isReplaced, why := sb.SourceLost(); isReplaced {
			return errdefs.New(errdefs.KindOf(why), "%w; to use it: agentfense exec %s --rebase -- true", why, sb.Name())
		}
	}
	return err
}

// TakeSnapshot makes a snapshot.
func (b *Backend) TakeSnapshot(ctx context.Context, name, label string, again []string) (snapshot.Snapshot, error) {
	sb, err := b.openOwn(name)
	if err != nil {
		return snapshot.Snapshot{}, err
	}
	s, err := snapshot.Take(sb, snapshot.Snapshot{Label: label}, freeze.Of(ctx, sb))
	return s, b.orAsOwner(ctx, sb, again, err)
}

// checkpoint makes a snapshot before a command.
func (l *localLive) checkpoint(ctx context.Context, argv []string) error {
	if _, err := l.b.openOwn(l.sb.Name()); err != nil {
		return err
	}
	_, err := snapshot.Take(l.sb, snapshot.Before(argv), func() (map[string]string, error) { return l.client.Freeze(ctx) })
	return err
}

// SnapshotTree lists the snapshots of a sandbox.
func (b *Backend) SnapshotTree(_ context.Context, name string) (snapshot.Tree, error) {
	sb, err := b.open(name)
	if err != nil {
		return snapshot.Tree{}, err
	}
	return snapshot.TreeOf(sb)
}

// RemoveSnapshots removes snapshots.
func (b *Backend) RemoveSnapshots(_ context.Context, name string, refs []string) error {
	sb, err := b.openOwn(name)
	if err != nil {
		return err
	}
	defer b.home.MakeRoom()()
	return snapshot.Remove(sb, refs...)
}

// lockStopped locks a sandbox that does not run.
func lockStopped(sb *record.Sandbox, purpose record.LockReason) (*record.Lock, error) {
	if err := launch.Cleanup(sb); err != nil {
		return nil, err
	}
	lock, err := sb.TryLock(purpose)
	if held := (*record.HeldError)(nil); errors.As(err, &held) && held.Owner.Purpose == record.PurposeSupervise {
		err = errdefs.New(errdefs.KindOf(err), "%w; stop it first: agentfense stop %s", err, sb.Name())
	}
	return lock, err
}

// Restore brings a sandbox back to a snapshot.
func (b *Backend) Restore(ctx context.Context, name, ref string, rebase bool, again []string) (snapshot.Restored, error) {
	sb, err := b.openOwn(name)
	if err != nil {
		return snapshot.Restored{}, err
	}
	defer b.home.MakeRoom()()
	if err := apply.CompleteStopped(sb); err != nil {
		return snapshot.Restored{}, b.orAsOwner(ctx, sb, again, err)
	}
	lock, err := lockStopped(sb, record.PurposeRestore)
	if err != nil {
		return snapshot.Restored{}, err
	}
	defer lock.Release()
	r, err := snapshot.Restore(sb, ref, rebase)
	return r, b.orAsOwner(ctx, sb, again, withRebase(sb, err))
}

// Fork makes sandboxes that begin with a state of another one.
func (b *Backend) Fork(ctx context.Context, name, ref string, names []string, rules *backend.Rules, rebase bool, again []string) ([]backend.Sandbox, error) {
	sb, err := b.openOwn(name)
	if err != nil {
		return nil, err
	}
	o := snapshot.ForkOptions{Names: names, Snapshot: ref, Rebase: rebase, Freeze: freeze.Of(ctx, sb)}
	if rules != nil {
		if rules.From != nil && !slices.Equal(rules.From, sb.Record().Rules) {
			return nil, errdefs.New(errdefs.Precondition, "sandbox %s: its policy has just changed: run fork again", sb.Name())
		}
		o.Change = func(r *record.Record) {
			r.SetRules(rules.Rules, rules.Note)
			r.Marks = rules.Marks
		}
	}
	made, err := snapshot.Fork(sb, o)
	err = b.orAsOwner(ctx, sb, again, withRebase(sb, err))
	var forks []backend.Sandbox
	for _, fork := range made {
		if rebase {
			err = errors.Join(err, rebaseParts(ctx, fork))
		}
		f, describing := sandboxOf(fork)
		forks, err = append(forks, f), errors.Join(err, describing)
	}
	return forks, err
}

// rebaseParts lets a fork use the directories that are at the paths of its sources now.
func rebaseParts(ctx context.Context, fork *record.Sandbox) error {
	for _, part := range fork.Parts() {
		if err := settleSource(ctx, part, true); err != nil {
			return err
		}
	}
	return nil
}

// Merge brings the changes of a sandbox into another one.
func (b *Backend) Merge(ctx context.Context, o backend.MergeOptions, again []string) (merge.Result, error) {
	into, err := b.openOwn(o.Into)
	if err != nil {
		return merge.Result{}, err
	}
	from, err := b.openOwn(o.From)
	if err != nil {
		return merge.Result{}, err
	}
	for _, sb := range []*record.Sandbox{into, from} {
		if err := b.asOwner(ctx, sb, again); err != nil {
			return merge.Result{}, err
		}
	}
	defer b.home.MakeRoom()()
	if !o.DryRun {
		lock, err := lockStopped(into, record.PurposeMerge)
		if err != nil {
			return merge.Result{}, err
		}
		defer lock.Release()
	}
	r, err := merge.Merge(ctx, merge.Options{
		Into: into, From: from, Snapshot: o.Snapshot, Freeze: freeze.Of(ctx, from),
		Paths: o.Paths, Resolve: o.Resolve, DryRun: o.DryRun,
	})
	return r, b.orAsOwner(ctx, into, again, withRebasing(err, into, from))
}

// Compare shows how two states differ.
func (b *Backend) Compare(ctx context.Context, earlier, later, mount string, paths []vpath.Path, again []string) (*backend.Compared, error) {
	x, err := b.openState(ctx, earlier, mount, again)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			x.Close()
		}
	}()
	y, err := b.openState(ctx, later, mount, again)
	if err != nil {
		return nil, err
	}
	err = between.CheckSources(x, y, earlier, later)
	var r *review.Review
	if err == nil {
		r, err = between.Compare(earlier+".."+later, x, y, paths...)
	}
	if err != nil {
		return nil, errors.Join(err, y.Close())
	}
	return &backend.Compared{Review: r, Close: func() error { return errors.Join(x.Close(), y.Close()) }}, nil
}

// openState opens a state of the workspace, or of a mount: the name of a sandbox, or
// NAME@SNAPSHOT.
func (b *Backend) openState(ctx context.Context, text, mount string, again []string) (*changes.Work, error) {
	name, ref, err := snapshot.SplitRef(text)
	if err != nil {
		return nil, err
	}
	sb, err := b.open(name)
	if err == nil {
		err = b.asOwner(ctx, sb, again)
	}
	if err != nil {
		return nil, err
	}
	return between.Open(sb, ref, mount)
}
