package apply

import (
	"cmp"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/review"
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
	// Kind is what the conflict is about.
	Kind conflict.Kind
	// Merged says that the source had changed, too, and has the changes of both now. Conflicts are
	// the places at which these contradict each other, which Options.OnConflict resolved.
	Merged    bool
	Conflicts int
	// Keys are all that Keep applied of the file; KeyConflicts are those that it left, because
	// the source had changed them.
	Keys, KeyConflicts []string
	// Hunks and OfHunks are how many of the file's hunks were chosen, and how many it has; 0 if all
	// of the change was chosen. A change of the mode counts as a hunk, and so does each piece of a
	// hunk of which only some pieces were chosen.
	Hunks, OfHunks int
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
		Kind: s.kind, Merged: s.merged && s.outcome == Applied, Mark: s.shown.mark, Group: s.shown.group, RenamedFrom: s.shown.renamedFrom, RenamedTo: s.shown.renamedTo,
	}
	if r.Merged {
		r.Conflicts = s.conflicts
	}
	if s.merging != nil {
		r.Keys, r.KeyConflicts = s.merging.Keys, s.merging.Conflicts
	}
	if s.part != nil {
		r.Hunks, r.OfHunks = s.part.Taken, s.part.All
		if r.Mark != nil && r.Mark.Reason == review.Executable && s.placedMode()&0o111 == 0 {
			r.Mark = nil // that hunk was not chosen
		}
	}
	return r
}

// refusal returns the error that stops the apply before its first step.
func (p *plan) refusal(name string) error {
	var paths []PathResult
	for _, s := range p.steps {
		if s.outcome == Conflict || s.outcome == Refused {
			paths = append(paths, PathResult{Outcome: s.outcome, Reason: s.reason})
		}
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
			if s.merged {
				e.Merged = append(e.Merged, audit.Text(s.Path))
			}
		case s.outcome == Present && p.work.Resumed[s.Path]:
			e.Paths = append(e.Paths, audit.Text(s.Path)) // applied by a killed apply, which wrote no record
		case s.outcome != Present && s.outcome != LeftOut:
			e.Refused = append(e.Refused, audit.Text(s.Path.Plain()))
		}
	}
	return e
}
