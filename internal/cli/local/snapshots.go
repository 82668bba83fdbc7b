package local

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/between"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
)

// freezing freezes a sandbox, running or not.
func freezing(ctx context.Context, sb *record.Sandbox) snapshot.Freezing {
	return func() (map[string]string, error) {
		deadline := time.Now().Add(enterTimeout)
		for {
			layers, err := freezeNow(ctx, sb)
			held := (*record.HeldError)(nil)
			if errors.As(err, &held) && time.Now().Before(deadline) && ctx.Err() == nil {
				time.Sleep(enterPause) // it is starting, ending, or being applied
				continue
			}
			return layers, err
		}
	}
}

func freezeNow(ctx context.Context, sb *record.Sandbox) (map[string]string, error) {
	c, err := client(ctx, sb)
	if err != nil {
		return nil, err
	}
	if c != nil {
		layers, err := c.Freeze(ctx)
		if !errdefs.Is(err, errdefs.NotFound) {
			return layers, err
		} // it has ended meanwhile
	}
	lock, err := sb.TryLock(record.PurposeSnapshot)
	if err != nil {
		return nil, err
	}
	defer lock.Release()
	return snapshot.FreezeStopped(sb)()
}

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

// TakeSnapshot makes a snapshot.
func (b *Backend) TakeSnapshot(ctx context.Context, name, label string, again []string) (snapshot.Snapshot, error) {
	sb, err := b.open(name)
	if err != nil {
		return snapshot.Snapshot{}, err
	}
	defer b.home.MakeRoom()()
	s, err := snapshot.Take(sb, snapshot.Snapshot{Label: label}, freezing(ctx, sb))
	return s, b.orAsOwner(ctx, sb, again, err)
}

// checkpoint makes a snapshot before a command.
func (l *localLive) checkpoint(ctx context.Context, argv []string) error {
	const longest = 200
	command := vpath.Escape(strings.Join(argv, " "))
	if len(command) > longest {
		command = strings.ToValidUTF8(command[:longest], "") + "…"
	}
	_, err := snapshot.Take(l.sb, snapshot.Snapshot{Reason: snapshot.BeforeCommand, Command: command}, func() (map[string]string, error) {
		return l.client.Freeze(ctx)
	})
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
	sb, err := b.open(name)
	if err != nil {
		return err
	}
	defer b.home.MakeRoom()()
	return snapshot.Remove(sb, refs...)
}

// Restore brings a sandbox back to a snapshot.
func (b *Backend) Restore(ctx context.Context, name, ref string, again []string) (snapshot.Restored, error) {
	sb, err := b.open(name)
	if err != nil {
		return snapshot.Restored{}, err
	}
	if err := launch.Cleanup(sb); err != nil {
		return snapshot.Restored{}, err
	}
	defer b.home.MakeRoom()()
	lock, err := sb.TryLock(record.PurposeRestore)
	if held := (*record.HeldError)(nil); errors.As(err, &held) && held.Owner.Purpose == record.PurposeSupervise {
		err = errdefs.New(errdefs.KindOf(err), "%w; stop it first: agentfense stop %s", err, sb.Name())
	}
	if err != nil {
		return snapshot.Restored{}, err
	}
	defer lock.Release()
	r, err := snapshot.Restore(sb, ref)
	return r, b.orAsOwner(ctx, sb, again, err)
}

// Fork makes sandboxes that begin with a state of another one.
func (b *Backend) Fork(ctx context.Context, name, ref string, names []string, rules *backend.Rules, again []string) ([]backend.Sandbox, error) {
	sb, err := b.open(name)
	if err != nil {
		return nil, err
	}
	o := snapshot.ForkOptions{Names: names, Snapshot: ref, Freeze: freezing(ctx, sb)}
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
	err = b.orAsOwner(ctx, sb, again, err)
	var forks []backend.Sandbox
	for _, fork := range made {
		f, describing := sandboxOf(fork)
		forks, err = append(forks, f), errors.Join(err, describing)
	}
	return forks, err
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
	if a, z := x.Sandbox.Stored.Source, y.Sandbox.Stored.Source; !a.IsSame(z) {
		err = errdefs.New(errdefs.Precondition, "%s and %s: they have two sources, %s and %s", earlier, later, a.Path, z.Path)
	}
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
	part, err := sb.InMount(mount)
	if err != nil {
		return nil, err
	}
	switch ref {
	case "", snapshot.Present:
		return changes.OpenState(part, part.LayersDir())
	case snapshot.Source:
		return changes.OpenState(part, "")
	}
	l, err := snapshot.Read(sb)
	if err != nil {
		return nil, err
	}
	s, err := l.Find(sb.Name(), ref)
	if err != nil {
		return nil, err
	}
	dir, has := s.LayerDir(sb, mount)
	if !has {
		return nil, errdefs.New(errdefs.NotFound, "%s: the snapshot was taken before the sandbox had the mount %s", text, mount)
	}
	return changes.OpenState(part, dir)
}
