package merge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// plan decides what becomes of each path, and changes nothing.
type plan struct {
	o                  *Options
	base, ours, theirs *state
	recorded           map[vpath.Path]layer.Base // what the base has recorded of the source
	steps              []*step
	at                 map[vpath.Path]*step
	conflicts          []Conflict
	stopped            map[vpath.Path]bool // paths of conflicts
	emptied            map[vpath.Path]bool // directories in which nothing stays
	sockets            []vpath.Path
	moves              map[*state]moves
}

// step is what a merge does at a path.
type step struct {
	path     vpath.Path
	was      *entry // of the sandbox that gets the changes
	becomes  *entry // nil: the entry stays, because Options.Resolve says so
	merged   bool
	resolved conflict.Kind
	implied  bool        // a directory that is made for what comes into it
	modeOnly bool        // the content stays, and the file, which has no other name
	baseOf   *state      // has base; nil if the present record of the path stays
	base     *layer.Base // what the source had, for a later apply
}

// status returns the change as git's letter.
func (s *step) status() changes.Status {
	switch {
	case s.becomes == nil:
		return 0
	case s.was.isAbsent():
		return changes.Added
	case s.becomes.isAbsent():
		return changes.Deleted
	case s.was.kind() != s.becomes.kind():
		return changes.Retyped
	}
	return changes.Modified
}

// openPlan opens the three states. theirs is the directory of the layers with the changes.
func openPlan(o *Options, theirs string) (*plan, error) {
	common, err := commonLayer(o, theirs)
	if err != nil {
		return nil, err
	}
	p := &plan{o: o, at: map[vpath.Path]*step{}, stopped: map[vpath.Path]bool{}, emptied: map[vpath.Path]bool{}, moves: map[*state]moves{}}
	for _, of := range []struct {
		to  **state
		sb  *record.Sandbox
		dir string
	}{{&p.base, o.Into, common}, {&p.ours, o.Into, o.Into.LayersDir()}, {&p.theirs, o.From, theirs}} {
		if *of.to, err = openState(of.sb, of.dir); err != nil {
			return nil, errors.Join(err, p.close())
		}
	}
	if p.recorded, err = p.base.work.Stack.Bases(); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *plan) close() error {
	var errs []error
	for _, s := range []*state{p.base, p.ours, p.theirs} {
		if s != nil {
			errs = append(errs, s.work.Close())
		}
	}
	return errors.Join(errs...)
}

// comparePaths orders parents before children.
func comparePaths(a, b vpath.Path) int { return cmp.Compare(a, b) }

// make decides.
func (p *plan) make(ctx context.Context) error {
	candidates, err := p.candidates()
	if err != nil {
		return err
	}
	for _, at := range candidates {
		if err := p.decide(ctx, at); err != nil {
			return err
		}
	}
	for _, at := range slices.Backward(candidates) { // what is in a directory before it
		if err := p.fit(at); err != nil {
			return err
		}
	}
	p.checkRights()
	slices.SortFunc(p.steps, func(a, b *step) int { return comparePaths(a.path, b.path) })
	slices.SortFunc(p.conflicts, func(a, b Conflict) int { return comparePaths(a.Path, b.Path) })
	return nil
}

// candidates returns the chosen paths at which their state may differ from the base.
func (p *plan) candidates() ([]vpath.Path, error) {
	all := map[vpath.Path]bool{}
	chosen := changes.Selection(p.o.Paths)
	for _, s := range []*state{p.base, p.theirs} {
		for at := range s.changed {
			if !at.IsOwn() && chosen(at) {
				all[at] = true
			}
		}
	}
	sorted := slices.SortedFunc(maps.Keys(all), comparePaths)
	for _, wanted := range p.o.Paths {
		if !slices.ContainsFunc(sorted, func(at vpath.Path) bool { return at.Within(wanted) }) {
			return nil, errdefs.New(errdefs.NotFound, "path %s: %s has changed nothing there", wanted, p.o.ref())
		}
	}
	return sorted, nil
}

// decide decides what becomes of a path, without regard to those above and below.
func (p *plan) decide(ctx context.Context, at vpath.Path) error {
	if err := ctx.Err(); err != nil {
		return errdefs.New(errdefs.Canceled, "merge %s: %w", p.o.ref(), err)
	}
	t, err := p.theirs.at(at)
	if err != nil {
		return err
	}
	b, err := p.baseAt(at)
	if err != nil {
		return err
	}
	if changed, err := p.isChanged(p.theirs, at, t, b); err != nil || !changed {
		return err
	}
	o, err := p.ours.at(at)
	if err != nil {
		return err
	}
	if same, err := o.isSame(t); err != nil || same {
		return err
	}
	if t.kind() == unix.S_IFSOCK {
		p.sockets = append(p.sockets, at)
		return nil
	}
	changed, err := p.isChanged(p.ours, at, o, b)
	switch {
	case err != nil:
		return err
	case changed:
		return p.mergeEntries(ctx, at, b, o, t)
	}
	same, err := o.hasContentOf(t)
	if err != nil {
		return err
	}
	p.add(&step{path: at, was: o, becomes: t, modeOnly: same && !o.linked})
	return nil
}

// baseAt returns what both sandboxes began with: what the layer that both have says, else what the
// source had when the first of them saw it.
func (p *plan) baseAt(at vpath.Path) (*entry, error) {
	if p.base.changed[at] != nil {
		return p.base.at(at)
	}
	if _, recorded := p.recorded[at]; recorded { // it may have removed what the source has lost since
		if e, err := p.base.at(at); err != nil || e.isAbsent() {
			return e, err
		}
	}
	s, b := older(p.ours, p.ours.base(at), p.theirs, p.theirs.base(at))
	return s.recorded(at, b), nil
}

// isChanged reports whether a state, which has e at a path, has changed what both began with.
func (p *plan) isChanged(s *state, at vpath.Path, e, base *entry) (bool, error) {
	if p.base.changed[at] == nil {
		return s.isChange(at), nil
	}
	if c := s.changed[at]; c != nil && (c.LeftOut() != "" || p.isKept(s, c)) {
		return false, nil // it did not delete it itself
	}
	same, err := e.isSame(base)
	return !same, err
}

// isKept reports whether a state shows nothing at a path although its sandbox did not delete what
// was there. What the layer that both have had made is not the source's: then the record of the
// path says nothing of the source.
func (p *plan) isKept(s *state, c *changes.Change) bool {
	if p.base.changed[c.Path].Kind != layer.Deleted && c.Kind == layer.Deleted {
		return c.Taken != "" && s.work.Hides(c.Path) != ""
	}
	return c.Kept != ""
}

func (p *plan) add(s *step) {
	ours, theirs := p.ours.base(s.path), p.theirs.base(s.path)
	if of, base := older(p.ours, ours, p.theirs, theirs); of == p.theirs && base != nil && !s.implied {
		s.baseOf, s.base = of, base
	}
	p.steps = append(p.steps, s)
	p.at[s.path] = s
}

func (p *plan) stop(at vpath.Path, kind conflict.Kind, format string, args ...any) {
	p.conflicts = append(p.conflicts, Conflict{at, kind, fmt.Sprintf(format, args...)})
	p.stopped[at] = true
}

// resolve decides a conflict between o and t by Options.Resolve, or reports it.
func (p *plan) resolve(at vpath.Path, kind conflict.Kind, o, t *entry, format string, args ...any) {
	switch p.o.Resolve {
	case conflict.Ours:
		p.add(&step{path: at, was: o, resolved: kind})
	case conflict.Theirs:
		p.add(&step{path: at, was: o, becomes: t, resolved: kind})
	default:
		p.stop(at, kind, format, args...)
	}
}

// drop takes a step out of the plan.
func (p *plan) drop(s *step) {
	delete(p.at, s.path)
	p.steps = slices.DeleteFunc(p.steps, func(other *step) bool { return other == s })
}

// becomes returns what will be at a path.
func (p *plan) becomes(at vpath.Path) (*entry, error) {
	if s := p.at[at]; s != nil && s.becomes != nil {
		return s.becomes, nil
	}
	return p.ours.at(at)
}

// leftOut returns what a merge never takes.
func (p *plan) leftOut() ([]LeftOut, error) {
	var left []LeftOut
	chosen := changes.Selection(p.o.Paths)
	for at, c := range p.theirs.changed {
		if why := c.LeftOut(); why != "" && p.base.changed[at] == nil && chosen(at.Plain()) {
			left = append(left, LeftOut{Path: at.Plain(), Reason: why})
		}
	}
	for _, at := range p.sockets {
		left = append(left, LeftOut{Path: at, Reason: "a socket belongs to a process"})
	}
	slices.SortFunc(left, func(a, b LeftOut) int { return comparePaths(a.Path, b.Path) })
	if len(p.o.Paths) > 0 || p.o.Snapshot != "" {
		return left, nil
	}
	for _, part := range p.o.From.Parts()[1:] {
		w, err := changes.OpenToRead(part)
		if err != nil {
			return nil, err
		}
		has, err := w.Stack.HasChanges()
		if err := errors.Join(err, w.Close()); err != nil {
			return nil, err
		}
		if has {
			left = append(left, LeftOut{Mount: part.Mount(), Reason: "changes in mounts are not merged"})
		}
	}
	return left, nil
}
