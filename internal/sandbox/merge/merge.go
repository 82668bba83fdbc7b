// Package merge brings what a sandbox has changed into the delta of another one of the same source.
//
// It compares three states: the one with which both sandboxes began, that of the sandbox that gets
// the changes ("ours") and that of the other one ("theirs"). Texts that both changed are merged by
// lines. A conflict stops the merge, unless the caller says which side wins.
//
// It promises that a merge is made as a whole or not at all, also when the process is killed; that
// the source is not touched; and that nothing changes which the policy of either sandbox does not
// let it write. It knows the workspace only: changes in mounts stay where they are. A hold of a
// server's sync comes along with the changes.
//
// The caller holds the lock of the sandbox that gets the changes. Lock order: that lock, then
// Home.HoldLayers, then the home's.
package merge

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// Options say what is merged.
type Options struct {
	Into *record.Sandbox // gets the changes; locked by the caller
	From *record.Sandbox // has the changes, and may run
	// Snapshot names a snapshot of From; "" means the present state, by Freeze.
	Snapshot string
	Freeze   snapshot.Freezing
	// Paths limits the merge to what is at and below them; none means everything.
	Paths []vpath.Path
	// Resolve says what becomes of conflicts: one that merges texts.
	Resolve conflict.Resolution
	// DryRun only says what would be done.
	DryRun bool
}

// Conflict says why a path cannot be merged.
type Conflict struct {
	Path   vpath.Path
	Kind   conflict.Kind
	Reason string
}

// Path is what a merge does at a path.
type Path struct {
	Path vpath.Path
	// Status is the change of the sandbox that gets it; 0 if the entry stays as it is.
	Status changes.Status
	// Merged says that the content is that of both sides.
	Merged bool
	// Resolved is the kind of the conflict that Options.Resolve has decided; "" if there was none.
	Resolved conflict.Kind
}

// LeftOut is a change that no merge takes.
type LeftOut struct {
	Path   vpath.Path // "" for a mount as a whole
	Mount  string     // "" for the workspace
	Reason string
}

// Result is what a merge did. With conflicts it did nothing.
type Result struct {
	Paths     []Path
	Conflicts []Conflict
	Left      []LeftOut
	// Kept is the snapshot of what was there before; its Number is 0 if nothing was changed.
	Kept snapshot.Snapshot
}

// Changed returns how many entries the merge changes.
func (r *Result) Changed() int {
	n := 0
	for _, p := range r.Paths {
		if p.Status != 0 {
			n++
		}
	}
	return n
}

// Merge merges. Errors: Precondition for sandboxes of two sources, and for ones with a clean
// repository; NotFound for a snapshot, and for a path at which nothing would change; Exhausted if
// the disk or the sandbox's limit is full; Canceled if ctx ends while it decides. After an error
// nothing is changed.
func Merge(ctx context.Context, o Options) (r Result, err error) {
	if err := o.check(); err != nil {
		return r, err
	}
	release, err := o.Into.Home.HoldLayers()
	if err != nil {
		return r, err
	}
	r, err = o.merge(ctx)
	release()
	if err != nil || r.Kept.Number == 0 {
		return r, err
	}
	return r, snapshot.Sweep(o.Into.Home)
}

func (o *Options) check() error {
	for _, sb := range []*record.Sandbox{o.Into, o.From} {
		if sb.Record().Git.IsClean() {
			return errdefs.New(errdefs.Precondition, "sandbox %s: cannot be merged: its commits are in its clean repository (--git=clean), which a merge does not bring along; apply its changes instead", sb.Name())
		}
	}
	if !o.Resolve.Merges() {
		return errdefs.New(errdefs.Invalid, "merge into %s: resolution %d belongs to an apply; want merge, ours, theirs or markers", o.Into.Name(), o.Resolve)
	}
	if o.Into.ID() == o.From.ID() && o.Snapshot == "" {
		return errdefs.New(errdefs.Invalid, "sandbox %s: cannot be merged into itself", o.Into.Name())
	}
	if err := isPresent(o.Into); err != nil {
		return err
	}
	if a, z := o.Into.Stored.Source, o.From.Stored.Source; !a.IsSame(z) {
		return errdefs.New(errdefs.Precondition, "%s and %s: they have two sources, %s and %s", o.From.Name(), o.Into.Name(), z.Path, a.Path)
	}
	return nil
}

func (o *Options) merge(ctx context.Context) (r Result, err error) {
	theirs, held, err := o.theirs()
	if err != nil {
		return r, err
	}
	p, err := openPlan(o, theirs)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.make(ctx); err != nil {
		return r, err
	}
	r.Conflicts = p.conflicts
	r.Left, err = p.leftOut()
	if err != nil || len(r.Conflicts) > 0 {
		return r, err
	}
	r.Paths = p.paths()
	if o.DryRun || r.Changed() == 0 {
		return r, nil
	}
	if err := o.noteContributor(); err != nil {
		return r, err
	}
	if err := holdBack(o.Into); err != nil {
		return r, err
	}
	r.Kept, err = o.put(p, theirs, held)
	if err != nil {
		return r, err
	}
	return r, o.Into.Log(audit.Merged{
		From: audit.Text(o.ref()), FromID: string(o.From.ID()), Kept: r.Kept.Ref(), Paths: changedPaths(r.Paths),
	})
}

// noteContributor notes the sandbox whose changes come, with its rules. It may have been able to
// read more than the one that gets them. It does so first, so that a kill forgets nothing.
func (o *Options) noteContributor() error {
	from := o.From.Record()
	return o.Into.Update(func(r *record.Record) error { return r.AddContributor(&from) })
}

func changedPaths(paths []Path) []audit.Text {
	var changed []vpath.Path
	for _, p := range paths {
		if p.Status != 0 {
			changed = append(changed, p.Path)
		}
	}
	return audit.Texts(changed)
}

// ref returns how a command names what is merged.
func (o *Options) ref() string {
	if o.Snapshot == "" {
		return o.From.Name()
	}
	return o.From.Name() + "@" + o.Snapshot
}

// theirs returns the directory of the layers that have the changes, "" if there are none, and
// whether a server held the sync of that state.
func (o *Options) theirs() (dir string, held bool, err error) {
	if o.DryRun && o.Snapshot == "" {
		return o.From.LayersDir(), false, nil
	}
	layers, held, err := snapshot.LayersAt(o.From, o.Snapshot, o.Freeze)
	if err != nil || layers[""] == "" {
		return "", false, err
	}
	failpoint.At("merge: frozen")
	return filepath.Join(o.From.Home.LayerStore(), layers[""]), held, nil
}

// holdBack notes that the sandbox's changes were shown as they are before the merge, if its owner
// has seen nothing later. So an apply leaves out what the merge brings until that was shown.
func holdBack(sb *record.Sandbox) error {
	last, err := manifest.LastShown(sb)
	if err != nil || last != "" {
		return err
	}
	digest, err := manifest.StoreNow(sb)
	if err != nil {
		return err
	}
	return manifest.SetLastShown(sb, digest)
}

// put makes the merged state beside the present one and exchanges the two. If a server held the
// sync of the other state, it holds that of the merged one.
func (o *Options) put(p *plan, theirs string, held bool) (kept snapshot.Snapshot, err error) {
	layers, _, err := snapshot.LayersAt(o.Into, "", snapshot.FreezeStopped(o.Into))
	if err != nil {
		return kept, err
	}
	failpoint.At("merge: base frozen")
	merged := ""
	if len(o.Paths) == 0 && theirs != "" {
		merged = filepath.Base(theirs)
	}
	next, err := layer.PrepareHead(o.Into.Home.LayerStore(), layers[""], merged)
	if err != nil {
		return kept, named(o.Into, err)
	}
	if err := p.build(next.Dir()); err != nil {
		next.Abandon()
		return kept, named(o.Into, err)
	}
	failpoint.At("merge: built")
	kept, err = snapshot.TakeHeld(o.Into, snapshot.Snapshot{Reason: snapshot.BeforeMerge, Command: o.ref()}, layers)
	if err == nil && held {
		err = o.Into.HoldSync()
	}
	if err != nil {
		next.Abandon()
		return kept, err
	}
	if err := next.Put(o.Into.LayersDir()); err != nil {
		return snapshot.Snapshot{}, named(o.Into, err)
	}
	failpoint.At("merge: put")
	return kept, nil
}

func named(sb *record.Sandbox, err error) error {
	return errdefs.New(errdefs.KindOf(err), "sandbox %s: %w", sb.Name(), err)
}

// paths returns what the steps do, by path.
func (p *plan) paths() []Path {
	paths := make([]Path, 0, len(p.steps))
	for _, s := range p.steps {
		paths = append(paths, Path{Path: s.path, Status: s.status(), Merged: s.merged, Resolved: s.resolved})
	}
	slices.SortFunc(paths, func(a, b Path) int { return comparePaths(a.Path, b.Path) })
	return paths
}

// isPresent returns an error if the source of a sandbox is lost.
func isPresent(sb *record.Sandbox) error {
	f, err := sb.Stored.Source.Open()
	if err != nil {
		return err
	}
	return f.Close()
}
