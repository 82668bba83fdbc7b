// Package apply applies the changes of a sandbox to its source, or discards them. No data
// is lost: apply refuses a path that has changed in the source since the sandbox saw it, it
// replaces each file in one step, and it drops an entry from the delta only after the
// source has it durably. The next command finishes a killed apply.
package apply

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/hunk"
)

// Outcome is what an apply did, or would do, with a path.
type Outcome string

// The outcomes.
const (
	Applied Outcome = "applied" // the source has it now, or in a dry run would have it
	Present Outcome = "present" // the source had it already
	Kept    Outcome = "kept"    // not deleted, because the sandbox did not delete it
	// Conflict and Refused prevent the whole apply.
	Conflict Outcome = "conflict" // the source has changed since the sandbox saw it
	Refused  Outcome = "refused"  // the policy does not permit the sandbox to write there
	Failed   Outcome = "failed"   // the host refused it
	Skipped  Outcome = "skipped"  // not tried, because an earlier step failed or another path stopped the apply
	// ChangedSinceReview: an apply of reviewed changes left it out. It stays in the delta.
	ChangedSinceReview Outcome = "changed_since_review"
	// LeftOut: an apply never includes own entries, or a deletion if an own entry has the
	// deleted content. It stays in the delta.
	LeftOut Outcome = "left_out"
)

// PathResult is the outcome at one path.
type PathResult struct {
	Path    vpath.Path
	Status  changes.Status
	Outcome Outcome
	Reason  string // the reason, unless applied
	Mark    *review.RiskFlag
	// Implied marks a directory that a review does not list, because the review lists a
	// change below it.
	Implied bool
	// Group, RenamedFrom and RenamedTo are as in review.FileDiff.
	Group                  string
	RenamedFrom, RenamedTo vpath.Path
	// Overwrote says that the source had changed, and the sandbox's version replaced it.
	Overwrote bool
	// Keys are all that Keep applied of the file; KeyConflicts are those that it left, because
	// the source had changed them.
	Keys, KeyConflicts []string
	// Hunks and OfHunks are how many of the file's hunks were chosen, and how many it has; 0 if all
	// of the change was chosen.
	Hunks, OfHunks int
}

// Options are the options of an apply.
type Options struct {
	// Paths select the changes at and below them; empty selects all.
	Paths []vpath.Path
	// Hunks are ids of changes and of hunks (package hunk); empty selects by Paths. The rest of a
	// file stays in the delta, relative to what the source has then. Not together with Paths.
	Hunks  []string
	DryRun bool
	// To is a directory to change instead of the source, or nil. Conflicts are then
	// conflicts with its content, and the delta keeps all changes.
	To *record.Source
	// Reviewed is the digest of the reviewed changes (review.Review.Remember). A change
	// that differs from the shown one is left out and reported. "" applies the present
	// changes.
	Reviewed string
	// AtStart applies the changes of a running sandbox as they are at the start, and leaves
	// out what the sandbox rewrites meanwhile.
	AtStart bool
	// OnConflict says what to do with a path that has changed in the source.
	OnConflict OnConflict
	// Drop makes the running supervisor drop the applied entries (see
	// changes.DropVersions). With nil the sandbox must not run; Changes takes its lock and
	// drops them itself.
	Drop func([]changes.Version) (stale []vpath.Path, err error)
	// placed, if not nil, is called before the delta drops the applied entries, with what
	// the source now has of them.
	placed func([]changes.Version)
	// Keep, if not nil, leaves out what a person must review.
	Keep *Keeper
	// Unreviewed leaves out what could act on the host by itself, for changes that no person has
	// reviewed: see holdRisks. It needs OnConflict.
	Unreviewed bool
	// Progress, if not nil, is called after each path that was tried.
	Progress func(tried, total int)
	// Waiting, if not nil, is called if another process applies changes to the source, before
	// Changes waits for it.
	Waiting func(holder string)
	// Recovered, if not nil, is called with what a killed process had left in the source and
	// Changes has rolled back.
	Recovered func(history.Recovered)
}

// Result has the outcome at each selected path, ordered by path.
type Result struct {
	Paths  []PathResult
	Groups []review.Group // of the changes
	// Changed are applied paths to which the sandbox wrote again meanwhile. The delta still
	// has the later version.
	Changed []vpath.Path
	Growth  changes.SizeDelta
	// Transaction is the id by which the apply can be undone, or "".
	Transaction string
}

// Skip turns the outcome of paths that would have been applied into Skipped.
func (r *Result) Skip() {
	for i := range r.Paths {
		if r.Paths[i].Outcome == Applied {
			r.Paths[i].Outcome, r.Paths[i].Reason = Skipped, stoppedByAnother
		}
	}
}

// Count returns how many changes had the outcome. It counts like a review.
func (r *Result) Count(o Outcome) int {
	n := 0
	for _, p := range r.Paths {
		if p.Outcome == o && p.isListed() {
			n++
		}
	}
	return n
}

// Listed returns the paths to show to a person.
func (r *Result) Listed() []PathResult {
	var list []PathResult
	for _, p := range r.Paths {
		if p.isListed() {
			list = append(list, p)
		}
	}
	return list
}

// AppliedLast returns the paths of Listed, with the applied ones at the end.
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

// isListed reports whether to show the path to a person: a review lists it, or it has a
// reason that no other path shows.
func (p *PathResult) isListed() bool {
	return !p.Implied || p.Outcome != Applied && p.Outcome != Present && p.Outcome != Skipped && p.Reason != PartOfRepository
}

// Changes applies the sandbox's changes to its source.
//
// It first checks every selected path. If one of them has changed in the source, or if the
// policy does not permit the sandbox to write there, it applies nothing: the error is a
// Precondition, and the result names all such paths. The caller can select the other paths,
// or set Options.OnConflict. Otherwise Changes replaces each file by one rename,
// directories first and deletions last, and then drops from the delta what the source has
// durably. It keeps a journal (package history): if the disk is full or ctx ends midway, it
// restores the source, and if it is killed, the next command does. If the host refuses a path,
// the result reports it, and it stays in the delta.
//
// Errors: Precondition, also if the sandbox is locked; NotFound for a path without changes, for an
// id that no change has, and for an Options.Reviewed that is no longer stored; Invalid; Denied and
// Exhausted from the host; Canceled; ErrBusy. A command in the sandbox can cause ErrBusy and
// Denied; if there is also another failure, the error is only that.
func Changes(ctx context.Context, s *record.Sandbox, o Options) (result Result, err error) {
	if !o.DryRun {
		defer s.Home.MakeRoom()()
	}
	h, err := openHistory(ctx, s, o)
	if err != nil {
		return result, err
	}
	defer h.Unlock()
	return changesIn(ctx, h, s, o)
}

// changesIn is Changes with the history of the source, nil for an apply without a journal.
func changesIn(ctx context.Context, h *history.Source, s *record.Sandbox, o Options) (result Result, err error) {
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
	w.NoteMade = o.placed != nil || o.Keep != nil || len(o.Hunks) > 0
	if err := h.Rebase(w); err != nil {
		return result, err
	}
	p, err := planSelected(w, o)
	if err != nil {
		return result, err
	}
	if err := o.Keep.restrict(p); err != nil {
		return result, err
	}
	if o.Unreviewed {
		if err := p.holdRisks(); err != nil {
			return result, err
		}
	}
	if err := p.answer(o.OnConflict, s.Ref()); err != nil {
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
	tell := p.teller(log, o)
	p.history = h
	var stale []vpath.Path
	stale, err, own = p.run(ctx, o, tell)
	result = p.result()
	result.Changed, result.Growth, result.Transaction = stale, p.growth(), p.transaction
	err = errors.Join(err, tell())
	if o.To == nil {
		if done := p.settled(); len(done) > 0 {
			err = errors.Join(err, manifest.Settle(s, func(at vpath.Path) bool { return done[at] }))
		}
	}
	return result, err
}

// teller returns a function that writes the record of the apply, once.
func (p *plan) teller(log *audit.Log, o Options) func() error {
	told := false
	return func() error {
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
}

// planReviewed plans the changes that o selects; picked has them if o names hunks, else it is nil.
func planReviewed(w *changes.Work, changes []changes.Change, picked *hunk.Picked, o Options) (p *plan, err error) {
	var reviewed manifest.Manifest
	switch {
	case o.Reviewed != "":
		reviewed, err = manifest.Load(w.Sandbox, o.Reviewed)
	case picked != nil:
		reviewed = picked.Entries
	case o.AtStart && o.Drop != nil:
		reviewed, err = manifest.Of(w, changes)
	}
	if err == nil {
		p, err = newPlan(w, changes, reviewed, o.Paths)
	}
	if err != nil || reviewed == nil {
		return p, err
	}
	if err := p.takePicked(picked, o.Paths); err != nil {
		return nil, err
	}
	p.holdBack()
	return p, p.lookAhead(o.DryRun)
}

// settled returns the paths that are no longer changes because of the apply.
func (p *plan) settled() map[vpath.Path]bool {
	done, pending := map[vpath.Path]bool{}, map[vpath.Path]bool{}
	for _, s := range p.steps {
		if s.done && s.Status != 0 && s.part == nil {
			done[s.Path] = true
		}
	}
	for _, c := range p.work.Delta {
		pending[c.Path] = true
	}
	for at := range p.work.Resumed {
		if !pending[at] { // a killed apply has applied it
			done[at] = true
		}
	}
	return done
}

// answer resolves the conflicts, and returns an error if a path stops the apply.
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
		s.was = s.Base // clearDir removes the directory first
	}
	return nil
}

// run executes the plan. It calls tell after the steps and before it drops the entries from
// the delta. It returns the paths to which the sandbox wrote meanwhile. own is applier.own.
func (p *plan) run(ctx context.Context, o Options, tell func() error) (stale []vpath.Path, err, own error) {
	paths := p.paths()
	a := applier{work: p.work, plan: p, total: len(paths), progress: o.Progress, tell: tell, drop: p.dropping(o)}
	if a.progress == nil {
		a.progress = func(int, int) {}
	}
	if p.work.ApplyLock == nil {
		return nil, tooFull(record.HostError("apply: nothing applied", unix.ENOSPC)), nil
	}
	if p.history != nil {
		if err := p.begin(p.history, o); err != nil {
			return nil, err, nil
		}
	}
	p.work.ApplyLock.Deferred = p.txn != nil
	if err := p.work.ApplyLock.Intend(paths); err != nil {
		return nil, tooFull(p.rollBack(err)), nil
	}
	if err := a.listPlacing(p.unstaged(), func(*step) *changes.Staged { return nil }); err != nil {
		return nil, p.rollBack(err), nil
	}
	failpoint.At("sync: intended")
	err = a.run(ctx)
	failpoint.At("sync: dropped")
	if a.dropped {
		err = errors.Join(err, p.work.EndApply())
	} // else the delta still has the placed entries, as after a kill
	return a.stale, err, a.own
}

// dropping returns what drops the applied versions from the delta; all says whether they are all
// changes.
func (p *plan) dropping(o Options) func(v []changes.Version, all bool) ([]vpath.Path, error) {
	return func(v []changes.Version, all bool) ([]vpath.Path, error) {
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
		if o.Drop == nil && all && forgets && len(o.Paths) == 0 && len(o.Hunks) == 0 {
			return nil, p.work.Stack.Reset() // equivalent, and faster
		}
		return p.work.Drop(v)
	}
}

// tooFull adds to an error of a full disk what can be done.
func tooFull(err error) error {
	if !errdefs.Is(err, errdefs.Exhausted) {
		return err
	}
	return errdefs.New(errdefs.Exhausted, "%w: apply fewer paths at once, or free the disk by agentfense discard or agentfense rm", err)
}

// paths returns the paths of the source that the plan changes.
func (p *plan) paths() []vpath.Path {
	var list []vpath.Path
	for _, s := range p.steps {
		if !s.done && s.outcome == Applied {
			list = append(list, s.Path)
		}
	}
	return list
}

// result returns the outcomes to report.
func (p *plan) result() Result {
	r := Result{Groups: p.groups}
	for _, s := range p.steps {
		if s.Status == 0 {
			continue
		}
		r.Paths = append(r.Paths, s.result())
	}
	r.Paths = append(r.Paths, p.goneResults()...)
	slices.SortStableFunc(r.Paths, func(a, b PathResult) int { return cmp.Compare(a.Path, b.Path) })
	return r
}

func (s *step) result() PathResult {
	r := PathResult{
		Path: s.Path.Plain(), Status: s.Status, Outcome: s.outcome, Reason: s.reason, Overwrote: s.overwrites, Implied: s.implied,
		Mark: s.shown.Mark, Group: s.shown.Group, RenamedFrom: s.shown.RenamedFrom, RenamedTo: s.shown.RenamedTo,
	}
	if s.merging != nil {
		r.Keys, r.KeyConflicts = s.merging.Keys, s.merging.Conflicts
	}
	if s.part != nil {
		r.Hunks, r.OfHunks = s.part.Taken, s.part.All
	}
	return r
}

// refusal returns the error that stops the apply before its first step.
func (p *plan) refusal(name string) error {
	paths := make([]PathResult, len(p.steps))
	for i, s := range p.steps {
		paths[i] = PathResult{Outcome: s.outcome, Reason: s.reason}
	}
	return Refusal(name, paths)
}

// Refusal returns the error that stops the apply of a sandbox before its first step, or nil
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

// stoppedByAnother is the reason of a skipped path.
const stoppedByAnother = "another path stopped the apply"

// skip marks the steps that would have been applied as skipped.
func (p *plan) skip() {
	for _, s := range p.steps {
		if s.outcome == Applied {
			s.outcome, s.reason = Skipped, stoppedByAnother
		}
	}
}

// event returns the audit record of the apply.
func (p *plan) event() audit.Applied {
	e := audit.Applied{Mount: p.work.Sandbox.Mount(), Kept: p.kept}
	for _, s := range p.steps {
		switch {
		case s.Status == 0:
		case s.outcome == Applied:
			e.Paths = append(e.Paths, audit.Text(s.Path))
			if s.overwrites {
				e.Overwrote = append(e.Overwrote, audit.Text(s.Path))
			}
		case s.outcome == Present && p.work.Resumed[s.Path]:
			e.Paths = append(e.Paths, audit.Text(s.Path)) // applied by a killed apply, which wrote no record
		case s.outcome != Present && s.outcome != LeftOut:
			e.Refused = append(e.Refused, audit.Text(s.Path.Plain()))
		}
	}
	return e
}
