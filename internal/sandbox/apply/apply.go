package sandbox

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/audit"
	"github.com/agentfense/agentfense/internal/crash"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/vpath"
)

// Outcome is what apply did, or would do, with a path.
type Outcome string

// The outcomes.
const (
	Applied Outcome = "applied" // the source has it now; in a dry run: would have
	Present Outcome = "present" // the source had it already
	Kept    Outcome = "kept"    // not deleted: not the sandbox's to delete
	// Conflict and Refused stop the whole apply before it begins.
	Conflict Outcome = "conflict" // the source is not what the sandbox saw
	Refused  Outcome = "refused"  // the policy does not let the sandbox write there
	Failed   Outcome = "failed"   // the host did not let it
	Skipped  Outcome = "skipped"  // not tried, because something before it failed or something stopped the whole
	// ChangedSinceReview is left out of an apply of what was reviewed. It stays in
	// the delta.
	ChangedSinceReview Outcome = "changed_since_review"
	// LeftOut is what no apply takes: an own entry, and a deletion whose content is
	// in one. It stays in the delta.
	LeftOut Outcome = "left_out"
)

// PathResult is the outcome at one path.
type PathResult struct {
	Path    vpath.Path
	Status  Status
	Outcome Outcome
	Reason  string // why, unless applied
	Mark    *Mark
	// Implied says that it is a directory that a review does not list, because
	// something below it tells of it.
	Implied bool
	// Group, RenamedFrom and RenamedTo are as in FileDiff.
	Group                  string
	RenamedFrom, RenamedTo vpath.Path
	// Overwrote says that the source was not what the sandbox saw, and the
	// sandbox's version took its place.
	Overwrote bool
}

// ApplyOptions say what to apply.
type ApplyOptions struct {
	// Paths select what lies at and below them; none: everything.
	Paths  []vpath.Path
	DryRun bool
	// To is the directory that takes the changes instead of the source, nil: none.
	// What counts as a conflict is its content, and the delta keeps everything.
	To *Source
	// Reviewed is the digest of what is applied (Review.Remember): what is not as
	// it was shown is left out, by name. "": what is there now.
	Reviewed string
	// AtStart has a live sandbox's changes applied as they are at the start: what
	// it rewrites meanwhile is left out.
	AtStart bool
	// OnConflict is what happens where the source is not what the sandbox saw.
	OnConflict OnConflict
	// Drop is told what was applied, for the live supervisor to forget it
	// (see DropVersions). Nil: the sandbox does not run; Apply takes its lock
	// and forgets by itself.
	Drop func([]Version) (stale []vpath.Path, err error)
	// placed, if not nil, is told what the delta is about to forget, with what the
	// source has of it now.
	placed func([]Version)
	// Progress, if not nil, is called after each path that was tried.
	Progress func(tried, total int)
}

// ApplyResult tells what became of each selected path, by path.
type ApplyResult struct {
	Paths  []PathResult
	Groups []Group // of the changes
	// Changed are paths that were applied while the sandbox wrote to them
	// again; the later version is still in the delta.
	Changed []vpath.Path
	Growth  Growth
}

// Skip notes that what would have been applied was not.
func (r *ApplyResult) Skip() {
	for i := range r.Paths {
		if r.Paths[i].Outcome == Applied {
			r.Paths[i].Outcome, r.Paths[i].Reason = Skipped, stoppedByAnother
		}
	}
}

// Count returns how many changes had the outcome, counted as a review counts
// them.
func (r *ApplyResult) Count(o Outcome) int {
	n := 0
	for _, p := range r.Paths {
		if p.Outcome == o && p.IsListed() {
			n++
		}
	}
	return n
}

// Listed returns the paths that a person is told of.
func (r *ApplyResult) Listed() []PathResult {
	var list []PathResult
	for _, p := range r.Paths {
		if p.IsListed() {
			list = append(list, p)
		}
	}
	return list
}

// IsListed reports whether a person is told of the path: a review lists it, or
// something stopped it that is not told at another path.
func (p *PathResult) IsListed() bool {
	return !p.Implied || p.Outcome != Applied && p.Outcome != Present && p.Outcome != Skipped && p.Reason != PartOfRepository
}

// Apply brings the sandbox's changes into its source.
//
// Every selected path is checked first. If the source at one of them is not
// what the sandbox saw, or the policy does not let the sandbox write there,
// nothing is applied: the error is a Precondition and the result names all
// such paths; the others can be applied by selecting them, or by another
// ApplyOptions.OnConflict than Stop. Otherwise each
// file is replaced by one rename, directories first and deletions last, and
// what the source holds durably leaves the delta. If the host fails midway,
// what was done is done and reported, and the rest stays in the delta.
//
// Errors: Precondition, also if the sandbox is locked; NotFound for a path at
// which nothing changed, and for ApplyOptions.Reviewed if it is kept no longer; Denied and Exhausted as the host has it; Canceled;
// ErrBusy. ErrBusy and Denied stand for failures that a command in the sandbox can
// bring about; where anything else failed too, the error tells of that alone.
func (s *Sandbox) Apply(ctx context.Context, o ApplyOptions) (result ApplyResult, err error) {
	var own error // see applier
	defer func() { err = cmp.Or(err, own) }()
	w, err := s.openToApply(o)
	if err != nil {
		return result, err
	}
	defer func() {
		result.Growth.Files += w.cleared.Files
		result.Growth.Bytes += w.cleared.Bytes
		result.Growth.Dirs += w.cleared.Dirs
		err = errors.Join(err, w.close())
	}()
	w.noteMade = o.placed != nil
	changes, err := w.changes(o.Paths, true)
	if err != nil {
		return result, err
	}
	if err := w.checkWhole(changes, o.Paths, s.Name()); err != nil {
		return result, err
	}
	p, err := w.planReviewed(changes, o)
	if err != nil {
		return result, err
	}
	if err := p.answer(o.OnConflict, s.Name()); err != nil {
		return p.result(), err
	}
	if o.DryRun {
		return p.result(), nil
	}
	log, err := s.OpenLog()
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	told := false
	tell := func() error {
		event := p.event()
		if told || len(event.Paths) == 0 && (o.OnConflict != Stop || len(event.Refused) == 0) {
			return nil
		}
		told = true
		if o.To != nil {
			event.To = audit.Text(o.To.Path)
		}
		return log.Append(event)
	}
	var stale []vpath.Path
	stale, err, own = p.run(ctx, o, tell)
	result = p.result()
	result.Changed, result.Growth = stale, p.growth()
	err = errors.Join(err, tell())
	if o.To == nil {
		if done := p.settled(); len(done) > 0 {
			err = errors.Join(err, s.settle(func(at vpath.Path) bool { return done[at] }))
		}
	}
	return result, err
}

// planReviewed plans what o says.
func (w *work) planReviewed(changes []change, o ApplyOptions) (p *plan, err error) {
	var reviewed manifest
	switch {
	case o.Reviewed != "":
		reviewed, err = w.sandbox.reviewed(o.Reviewed)
	case o.AtStart && o.Drop != nil:
		reviewed, err = w.manifestOf(changes)
	}
	if err == nil {
		p, err = w.plan(changes, reviewed, o.Paths)
	}
	if err != nil || reviewed == nil {
		return p, err
	}
	p.findGone(o.Paths)
	p.holdBack()
	return p, p.lookAhead(o.DryRun)
}

// settled tells what is no change any more because of the apply.
func (p *plan) settled() map[vpath.Path]bool {
	done, pending := map[vpath.Path]bool{}, map[vpath.Path]bool{}
	for _, s := range p.steps {
		if s.done && s.status != 0 {
			done[s.Path] = true
		}
	}
	for _, c := range p.work.delta {
		pending[c.Path] = true
	}
	for at := range p.work.resumed {
		if !pending[at] { // a killed apply was about to touch it, and did
			done[at] = true
		}
	}
	return done
}

// answer decides about the paths that stop an apply, or would.
func (p *plan) answer(how OnConflict, name string) error {
	if how != Stop {
		if err := p.resolve(how); err != nil {
			return err
		}
	} else if err := p.refusal(name); err != nil {
		p.skip()
		return err
	}
	p.keepWhole()
	for _, s := range p.steps {
		s.was = s.Base // clearDir makes room and takes it away
	}
	return nil
}

// run carries the plan out, and calls tell when it is done and the delta still
// has it. It returns what the sandbox wrote to meanwhile; own is applier.own.
func (p *plan) run(ctx context.Context, o ApplyOptions, tell func() error) (stale []vpath.Path, err, own error) {
	paths := p.paths()
	a := applier{work: p.work, plan: p, total: len(paths), progress: o.Progress, tell: tell, drop: func(v []Version, all bool) ([]vpath.Path, error) {
		if o.To != nil {
			return nil, nil
		}
		if o.placed != nil {
			o.placed(v)
		}
		v, forgets, err := p.work.markKept(v)
		if err != nil {
			return nil, err
		}
		if o.Drop == nil && all && forgets && len(o.Paths) == 0 {
			return nil, p.work.stack.DropAll() // the same, at once
		}
		return p.work.drop(v)
	}}
	if a.progress == nil {
		a.progress = func(int, int) {}
	}
	if err := p.work.turn.intend(paths); err != nil {
		if fault.Is(err, fault.Exhausted) {
			err = fault.New(fault.Exhausted, "%w: nothing applied; apply fewer paths at once, or free the disk by agentfense discard or agentfense rm", err)
		}
		return nil, err, nil
	}
	if err := a.listPlacing(p.unstaged(), func(*step) *staged { return nil }); err != nil {
		return nil, err, nil
	}
	crash.At("sync: intended")
	err = a.run(ctx)
	crash.At("sync: dropped")
	if a.dropped {
		err = errors.Join(err, p.work.endTurn())
	} // else the delta has what was placed, as after a kill
	return a.stale, err, a.own
}

// paths lists the paths of the source that will be touched.
func (p *plan) paths() []vpath.Path {
	var list []vpath.Path
	for _, s := range p.steps {
		if !s.done && s.outcome == Applied {
			list = append(list, s.Path)
		}
	}
	return list
}

// result lists the outcomes at the paths that have one to tell of.
func (p *plan) result() ApplyResult {
	r := ApplyResult{Groups: p.groups}
	for _, s := range p.steps {
		if s.status == 0 {
			continue
		}
		r.Paths = append(r.Paths, PathResult{
			Path: s.Path.Plain(), Status: s.status, Outcome: s.outcome, Reason: s.reason, Overwrote: s.overwrites, Implied: s.implied,
			Mark: s.shown.Mark, Group: s.shown.Group, RenamedFrom: s.shown.RenamedFrom, RenamedTo: s.shown.RenamedTo,
		})
	}
	r.Paths = append(r.Paths, p.goneResults()...)
	slices.SortStableFunc(r.Paths, func(a, b PathResult) int { return cmp.Compare(a.Path, b.Path) })
	return r
}

// refusal is the error that stops an apply before it begins.
func (p *plan) refusal(name string) error {
	paths := make([]PathResult, len(p.steps))
	for i, s := range p.steps {
		paths[i] = PathResult{Outcome: s.outcome, Reason: s.reason}
	}
	return Refusal(name, paths)
}

// Refusal is the error that stops the apply of a sandbox before it begins, nil
// if no path is in conflict or refused. Errors: Precondition.
func Refusal(name string, paths []PathResult) error {
	conflicts, closed, own, moved := 0, 0, 0, 0
	for _, r := range paths {
		switch {
		case r.Outcome == Conflict:
			conflicts++
		case r.Outcome != Refused:
		case r.Reason == ownReason:
			own++
		case strings.HasPrefix(r.Reason, movedReason):
			moved++
		default:
			closed++
		}
	}
	var parts []string
	for _, part := range []struct {
		n   int
		why string
	}{
		{conflicts, "in conflict with the source"},
		{closed, "not writable by the policy"},
		{own, ownReason},
		{moved, "not deleted: its content was moved to what is never applied"},
	} {
		if part.n > 0 {
			parts = append(parts, count(part.n, "path")+" "+part.why)
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return fault.New(fault.Precondition, "apply %s: nothing applied: %s", name, strings.Join(parts, ", "))
}

// stoppedByAnother is why a path was skipped.
const stoppedByAnother = "another path stopped the apply"

// skip notes that what would have been applied was not.
func (p *plan) skip() {
	for _, s := range p.steps {
		if s.outcome == Applied {
			s.outcome, s.reason = Skipped, stoppedByAnother
		}
	}
}

// event is the audit record of what was done.
func (p *plan) event() audit.Applied {
	var e audit.Applied
	for _, s := range p.steps {
		switch {
		case s.status == 0:
		case s.outcome == Applied:
			e.Paths = append(e.Paths, audit.Text(s.Path))
			if s.overwrites {
				e.Overwrote = append(e.Overwrote, audit.Text(s.Path))
			}
		case s.outcome == Present && p.work.resumed[s.Path]:
			e.Paths = append(e.Paths, audit.Text(s.Path)) // which the killed apply has not told
		case s.outcome != Present && s.outcome != LeftOut:
			e.Refused = append(e.Refused, audit.Text(s.Path.Plain()))
		}
	}
	return e
}
