// Package apply brings the changes of a sandbox into its source, or discards them.
// Nothing is lost: a path whose source is not what the sandbox saw is refused, each
// file is replaced whole, and an entry leaves the delta only after the source holds
// it durably. A killed apply is finished by the next command.
package apply

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
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
	Status  changes.Status
	Outcome Outcome
	Reason  string // why, unless applied
	Mark    *review.RiskFlag
	// Implied says that it is a directory that a review does not list, because
	// something below it tells of it.
	Implied bool
	// Group, RenamedFrom and RenamedTo are as in review.FileDiff.
	Group                  string
	RenamedFrom, RenamedTo vpath.Path
	// Overwrote says that the source was not what the sandbox saw, and the
	// sandbox's version took its place.
	Overwrote bool
}

// Options say what to apply.
type Options struct {
	// Paths select what lies at and below them; none: everything.
	Paths  []vpath.Path
	DryRun bool
	// To is the directory that takes the changes instead of the source, nil: none.
	// What counts as a conflict is its content, and the delta keeps everything.
	To *record.Source
	// Reviewed is the digest of what is applied (review.Review.Remember): what is not as
	// it was shown is left out, by name. "": what is there now.
	Reviewed string
	// AtStart has a live sandbox's changes applied as they are at the start: what
	// it rewrites meanwhile is left out.
	AtStart bool
	// OnConflict is what happens where the source is not what the sandbox saw.
	OnConflict OnConflict
	// Drop is told what was applied, for the live supervisor to forget it
	// (see changes.DropVersions). Nil: the sandbox does not run; Changes takes its lock
	// and forgets by itself.
	Drop func([]changes.Version) (stale []vpath.Path, err error)
	// placed, if not nil, is told what the delta is about to forget, with what the
	// source has of it now.
	placed func([]changes.Version)
	// Progress, if not nil, is called after each path that was tried.
	Progress func(tried, total int)
}

// Result tells what became of each selected path, by path.
type Result struct {
	Paths  []PathResult
	Groups []review.Group // of the changes
	// Changed are paths that were applied while the sandbox wrote to them
	// again; the later version is still in the delta.
	Changed []vpath.Path
	Growth  changes.SizeDelta
}

// Skip notes that what would have been applied was not.
func (r *Result) Skip() {
	for i := range r.Paths {
		if r.Paths[i].Outcome == Applied {
			r.Paths[i].Outcome, r.Paths[i].Reason = Skipped, stoppedByAnother
		}
	}
}

// Count returns how many changes had the outcome, counted as a review counts
// them.
func (r *Result) Count(o Outcome) int {
	n := 0
	for _, p := range r.Paths {
		if p.Outcome == o && p.isListed() {
			n++
		}
	}
	return n
}

// Listed returns the paths that a person is told of.
func (r *Result) Listed() []PathResult {
	var list []PathResult
	for _, p := range r.Paths {
		if p.isListed() {
			list = append(list, p)
		}
	}
	return list
}

// AppliedLast returns what Listed does, what was applied last.
func (r *Result) AppliedLast() []PathResult {
	var list, applied []PathResult
	for _, p := range r.Listed() {
		if p.Outcome == Applied {
			applied = append(applied, p)
		} else {
			list = append(list, p)
		}
	}
	return append(list, applied...)
}

// isListed reports whether a person is told of the path: a review lists it, or
// something stopped it that is not told at another path.
func (p *PathResult) isListed() bool {
	return !p.Implied || p.Outcome != Applied && p.Outcome != Present && p.Outcome != Skipped && p.Reason != PartOfRepository
}

// Changes brings the sandbox's changes into its source.
//
// Every selected path is checked first. If the source at one of them is not
// what the sandbox saw, or the policy does not let the sandbox write there,
// nothing is applied: the error is a Precondition and the result names all
// such paths; the others can be applied by selecting them, or by another
// Options.OnConflict than Stop. Otherwise each file is replaced by one rename,
// directories first and deletions last, and what the source holds durably leaves
// the delta. If the host fails midway, what was done is done and reported, and the
// rest stays in the delta.
//
// Errors: Precondition, also if the sandbox is locked; NotFound for a path at
// which nothing changed, and for Options.Reviewed if it is kept no longer; Denied and
// Exhausted as the host has it; Canceled; ErrBusy. ErrBusy and Denied stand for failures that a
// command in the sandbox can bring about; where anything else failed too, the error tells of that
// alone.
func Changes(ctx context.Context, s *record.Sandbox, o Options) (result Result, err error) {
	var own error // see applier
	defer func() { err = cmp.Or(err, own) }()
	w, err := openToApply(s, o)
	if err != nil {
		return result, err
	}
	defer func() {
		result.Growth.Files += w.Cleared.Files
		result.Growth.Bytes += w.Cleared.Bytes
		result.Growth.Dirs += w.Cleared.Dirs
		err = errors.Join(err, w.Close())
	}()
	w.NoteMade = o.placed != nil
	changes, err := w.Changes(o.Paths, true)
	if err != nil {
		return result, err
	}
	if err := review.CheckWhole(w, changes, o.Paths, s.Name()); err != nil {
		return result, err
	}
	p, err := planReviewed(w, changes, o)
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
			err = errors.Join(err, manifest.Settle(s, func(at vpath.Path) bool { return done[at] }))
		}
	}
	return result, err
}

// planReviewed plans what o says.
func planReviewed(w *changes.Work, changes []changes.Change, o Options) (p *plan, err error) {
	var reviewed manifest.Manifest
	switch {
	case o.Reviewed != "":
		reviewed, err = manifest.Load(w.Sandbox, o.Reviewed)
	case o.AtStart && o.Drop != nil:
		reviewed, err = manifest.Of(w, changes)
	}
	if err == nil {
		p, err = newPlan(w, changes, reviewed, o.Paths)
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
		if s.done && s.Status != 0 {
			done[s.Path] = true
		}
	}
	for _, c := range p.work.Delta {
		pending[c.Path] = true
	}
	for at := range p.work.Resumed {
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
func (p *plan) run(ctx context.Context, o Options, tell func() error) (stale []vpath.Path, err, own error) {
	paths := p.paths()
	a := applier{work: p.work, plan: p, total: len(paths), progress: o.Progress, tell: tell, drop: func(v []changes.Version, all bool) ([]vpath.Path, error) {
		if o.To != nil {
			return nil, nil
		}
		if o.placed != nil {
			o.placed(v)
		}
		v, forgets, err := p.work.MarkKept(v)
		if err != nil {
			return nil, err
		}
		if o.Drop == nil && all && forgets && len(o.Paths) == 0 {
			return nil, p.work.Stack.Reset() // the same, at once
		}
		return p.work.Drop(v)
	}}
	if a.progress == nil {
		a.progress = func(int, int) {}
	}
	if err := p.work.ApplyLock.Intend(paths); err != nil {
		if errdefs.Is(err, errdefs.Exhausted) {
			err = errdefs.New(errdefs.Exhausted, "%w: nothing applied; apply fewer paths at once, or free the disk by agentfense discard or agentfense rm", err)
		}
		return nil, err, nil
	}
	if err := a.listPlacing(p.unstaged(), func(*step) *changes.Staged { return nil }); err != nil {
		return nil, err, nil
	}
	failpoint.At("sync: intended")
	err = a.run(ctx)
	failpoint.At("sync: dropped")
	if a.dropped {
		err = errors.Join(err, p.work.EndApply())
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
func (p *plan) result() Result {
	r := Result{Groups: p.groups}
	for _, s := range p.steps {
		if s.Status == 0 {
			continue
		}
		r.Paths = append(r.Paths, PathResult{
			Path: s.Path.Plain(), Status: s.Status, Outcome: s.outcome, Reason: s.reason, Overwrote: s.overwrites, Implied: s.implied,
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
		case r.Reason == changes.OwnReason:
			own++
		case strings.HasPrefix(r.Reason, changes.MovedReason):
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
		{own, changes.OwnReason},
		{moved, "not deleted: its content was moved to what is never applied"},
	} {
		if part.n > 0 {
			parts = append(parts, review.Count(part.n, "path")+" "+part.why)
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return errdefs.New(errdefs.Precondition, "apply %s: nothing applied: %s", name, strings.Join(parts, ", "))
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
		case s.Status == 0:
		case s.outcome == Applied:
			e.Paths = append(e.Paths, audit.Text(s.Path))
			if s.overwrites {
				e.Overwrote = append(e.Overwrote, audit.Text(s.Path))
			}
		case s.outcome == Present && p.work.Resumed[s.Path]:
			e.Paths = append(e.Paths, audit.Text(s.Path)) // which the killed apply has not told
		case s.outcome != Present && s.outcome != LeftOut:
			e.Refused = append(e.Refused, audit.Text(s.Path.Plain()))
		}
	}
	return e
}
