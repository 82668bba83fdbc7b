package undo

import (
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// delta is the sandbox's delta while a transaction is reversed. Without a sandbox its methods do
// nothing.
type delta struct {
	sandbox *record.Sandbox // nil: removed
	work    *changes.Work   // nil: the delta does not change
}

// openDelta opens the delta, with its locks.
func openDelta(h *history.Source, of *history.Entry, s *record.Sandbox, o Options) (*delta, error) {
	d := &delta{sandbox: s}
	if s == nil || of.Elsewhere || of.Branch != nil || !s.Stored.Source.IsSame(of.Source) {
		return d, nil
	}
	w, err := changes.OpenTo(s, record.PurposeApply, o.Drop, false)
	if err != nil {
		return nil, err
	}
	d.work = w
	if err := apply.Settle(h, w); err != nil {
		_ = d.close() // the error says what is wrong
		return nil, err
	}
	return d, nil
}

func (d *delta) close() error {
	if d.work == nil {
		return nil
	}
	return d.work.Close()
}

// update makes the delta fit the source after the undo e. It reports whether the delta has all
// changes that were undone.
func (d *delta) update(e *history.Entry) (givenBack bool, err error) {
	if d.work == nil {
		return false, nil
	}
	rest, err := d.rebase(e)
	if err != nil || d.work.Lock == nil { // a supervisor has the delta
		return false, err
	}
	if len(rest.gone)+len(rest.made) == 0 {
		return !rest.closed, nil
	}
	all, err := d.giveBack(e, rest)
	switch {
	case errdefs.Is(err, errdefs.Unsupported):
		return false, nil // the file system cannot exchange directories
	case err != nil:
		return false, errdefs.New(errdefs.KindOf(err), "undo %s: the source is restored, but the sandbox did not get the changes back; they stay in the history: %w", e.Of, err)
	}
	return all && !rest.closed, nil
}

// givingBack has the numbers of the steps to give back.
type givingBack struct {
	gone   []int // entries that the sandbox had removed or replaced by another type, deepest first
	made   []int // entries that it had made or changed, parents first
	closed bool  // the policy no longer lets the sandbox write some of the paths
}

// rebase returns the steps at which the delta has nothing. Where it has a later version, that is
// made of what the source has now; a later removal of what the source no longer has is dropped.
func (d *delta) rebase(e *history.Entry) (g givingBack, err error) {
	bases, err := d.work.Stack.Bases()
	if err != nil {
		return g, err
	}
	var versions []changes.Version
	for i := range e.Steps {
		s := &e.Steps[i]
		at, err := s.At()
		if err != nil {
			return g, err
		}
		has, removed, err := d.has(at, s)
		_, recorded := bases[at]
		switch {
		case err != nil:
			return g, err
		case removed && recorded:
			versions = append(versions, changes.Version{Path: s.Path, Deleted: true})
			continue
		case !has:
			d.note(&g, i, s, at)
			continue
		case !wasMadeOf(bases, at, s.Before):
			continue // it was made of another version: that stays a conflict
		}
		base, err := d.baseNow(at)
		if err != nil {
			return g, err
		}
		versions = append(versions, changes.Version{Path: s.Path, Made: base})
	}
	slices.Reverse(g.gone)
	if len(versions) > 0 {
		_, err = d.work.Drop(versions)
	}
	return g, err
}

// note adds the step i, at which the delta has nothing, to what is to be given back.
func (d *delta) note(g *givingBack, i int, s *history.Step, at vpath.Path) {
	if !d.work.MayWrite(at) && !(s.Before.IsDir() && s.After == nil && d.work.Policy.MayMkdir(at)) {
		g.closed = true
		return
	}
	if s.Before == nil || s.After != nil && s.After.Mode&record.TypeBits != s.Before.Mode&record.TypeBits {
		g.gone = append(g.gone, i)
	}
	if s.Before != nil {
		g.made = append(g.made, i)
	}
}

// wasMadeOf reports whether the delta's entry at p was made of e, which the reversal takes out.
func wasMadeOf(bases map[vpath.Path]layer.Base, p vpath.Path, e *history.Entity) bool {
	base, recorded := bases[p]
	switch {
	case e == nil || !recorded || base.Absent:
		return e == nil && (!recorded || base.Absent)
	case e.IsDir():
		return base.Mode == e.Mode
	}
	return base.Ino == e.Ino && base.Size == e.Size && base.Mtime == e.Mtime
}

// has reports whether the delta has, or hides, an entry of its own at p. removed says that neither
// the view nor the source has one.
func (d *delta) has(p vpath.Path, s *history.Step) (has, removed bool, err error) {
	info, err := d.work.Stack.Lookup(p)
	switch {
	case errdefs.Is(err, errdefs.NotFound), errdefs.Is(err, errdefs.Precondition):
		return s.After != nil, s.After == nil, nil // the source has what was restored
	case err != nil:
		return false, false, err
	}
	return info.Origin != layer.Source && !(info.IsDir() && s.After.IsDir() && s.Before.IsDir()), false, nil
}

func (d *delta) baseNow(p vpath.Path) (base *layer.Base, err error) {
	err = d.work.Tree.At(p, func(e changes.Entry) error {
		now, err := e.Stat()
		switch {
		case err != nil:
			return err
		case now == nil:
			base = &layer.Base{Absent: true}
		default:
			base = changes.BaseOf(now)
		}
		return nil
	})
	if changes.IsWayGone(err) {
		return &layer.Base{Absent: true}, nil
	}
	return base, err
}

// takesOut returns what the delta drops after the steps of a redo, because the source has it again,
// and new bases for what was made of what the source had before.
func (d *delta) takesOut(steps []history.Step) ([]changes.Version, error) {
	list, err := d.work.Changes(nil, true)
	if err != nil {
		return nil, err
	}
	bases, err := d.work.Stack.Bases()
	if err != nil {
		return nil, err
	}
	versions, at, err := d.removedAgain(steps, bases)
	if err != nil {
		return nil, err
	}
	for i := range list {
		c := &list[i]
		s := at[c.Path]
		if s == nil {
			continue
		}
		present, err := d.work.IsPresent(c)
		if err != nil {
			return nil, err
		}
		v := c.Version()
		switch {
		case present:
		case !wasMadeOf(bases, c.Path, s.Before):
			continue // it was made of another version: that stays a conflict
		default:
			v = changes.Version{Path: v.Path}
		}
		if v.Made, err = d.baseNow(c.Path); err != nil {
			return nil, err
		}
		versions = append(versions, v)
	}
	return versions, nil
}

// removedAgain returns the removals of the delta that the steps of a redo have done in the source,
// and the steps by path. The removals are no changes any more, but would hide what a person makes
// there later.
func (d *delta) removedAgain(steps []history.Step, bases map[vpath.Path]layer.Base) (versions []changes.Version, by map[vpath.Path]*history.Step, err error) {
	by = map[vpath.Path]*history.Step{}
	for i := range steps {
		s := &steps[i]
		at, err := s.At()
		if err != nil {
			return nil, nil, err
		}
		by[at] = s
		_, recorded := bases[at]
		_, removed, err := d.has(at, s)
		if err != nil {
			return nil, nil, err
		}
		if removed && recorded {
			versions = append(versions, changes.Version{Path: s.Path, Deleted: true})
		}
	}
	return versions, by, nil
}
