package apply

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/hunk"
	"github.com/agentfense/agentfense/internal/sandbox/review/keeping"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// step is the plan for one change.
type step struct {
	changes.Change
	outcome  Outcome // before its execution, Applied means planned
	reason   string
	kind     conflict.Kind // of a conflict
	shown    shown         // of the review
	implied  bool          // a review does not list it
	withRest bool          // left out because another change of its git directory is
	done     bool          // only dropping it from the delta remains
	inPlace  bool          // only the mode of the source's file changes
	remade   bool          // only the mode of the source's directory is missing, see changes.Work.Unfinished
	// overwrites says that the source has changed since the sandbox saw it.
	overwrites bool
	moved      bool            // Base is not what the sandbox saw, but what the source has
	was        *layer.Base     // the replaced entry
	places     *layer.Base     // the resulting entry of the source, see placing; nil if unknown
	made       *layer.Base     // the source's entry after the step; nil if unknown
	merging    *keeping.Merged // of a file of which only a part is applied, else nil
	part       *hunk.Part      // the part, if hunks were chosen
	partly     bool            // a part of a file was chosen that has changed in the source
	merged     bool            // merging has the source's changes, too
	conflicts  int             // places at which they contradict the sandbox's
}

// shown is what counts of how a review shows a change. There can be a million steps: it is no
// review.FileDiff, which has the change a second time.
type shown struct {
	mark                   *review.RiskFlag
	group                  string
	renamedFrom, renamedTo vpath.Path
	keeping                keeping.Decision
}

func (s *step) stop(o Outcome, format string, args ...any) {
	s.outcome, s.reason, s.kind = o, fmt.Sprintf(format, args...), ""
}

// conflict is stop with a conflict.
func (s *step) conflict(kind conflict.Kind, format string, args ...any) {
	s.stop(Conflict, format, args...)
	s.kind = kind
}

// plan has the steps of an apply, parents before children.
type plan struct {
	work  *changes.Work
	steps []*step
	at    map[vpath.Path]*step
	// groups are the groups of the changes.
	groups []review.Group
	// reviewed has the reviewed changes, or nil to apply the present ones. gone are
	// reviewed changes that are no longer changes.
	reviewed manifest.Manifest
	gone     []vpath.Path
	named    []vpath.Path // named by the caller
	kept     bool         // by rules with apply: keep, see Keeper
	whole    bool         // all steps are of one database: placed together
	merged   int          // bytes of the merged texts
	// history is that of the source, or nil for an apply without a journal. txn is the journal
	// while the plan is executed, transaction its id if something was applied.
	history     *history.Source
	txn         *transaction
	transaction string
	rest        *history.Rest // of the transaction, after its commit; or nil
}

// newPlan decides the outcome of each change and changes nothing. If reviewed is not nil,
// it leaves out changes that differ from it. named are the paths that the caller named.
func newPlan(w *changes.Work, changes []changes.Change, reviewed manifest.Manifest, named []vpath.Path) (*plan, error) {
	p := &plan{work: w, named: named, at: make(map[vpath.Path]*step, len(changes)), reviewed: reviewed}
	for _, c := range changes {
		s := &step{Change: c, outcome: Applied}
		p.steps = append(p.steps, s)
		p.at[c.Path] = s
		if err := p.decide(s); err != nil {
			return nil, err
		}
	}
	p.keepDirs()
	return p, p.showSteps(changes)
}

// showSteps sets how a review shows the steps.
func (p *plan) showSteps(changes []changes.Change) error {
	files, groups, err := review.FileDiffs(p.work, changes, manifest.Manifest{})
	if err != nil {
		return err
	}
	p.groups = groups
	for i := range files {
		f := &files[i]
		p.at[f.Change.Path].shown = shown{f.Mark, f.Group, f.RenamedFrom, f.RenamedTo, f.Keeping}
	}
	for dir := range review.Implied(changes) {
		p.at[dir].implied = true
	}
	return nil
}

// decide sets the outcome of s that follows from s and its parent.
func (p *plan) decide(s *step) error {
	switch {
	case s.Status == 0:
		s.done = true
		return nil
	case s.Kept != "":
		s.stop(Kept, "%s", s.Kept)
		s.done = true
		return nil
	case s.LeftOut() != "":
		p.leaveOut(s, s.LeftOut())
		return nil
	case s.Info.Mode&record.TypeBits == unix.S_IFSOCK && s.Status != changes.Deleted:
		s.stop(Kept, "a socket cannot be applied, because it belongs to a process")
		return nil
	case s.Info.Mode&record.TypeBits == unix.S_IFIFO && s.Status != changes.Deleted && p.work.Sandbox.Mount() != "":
		s.stop(Kept, "a FIFO cannot be applied to a mount, which shows none of its source")
		return nil
	}
	if why, err := p.differs(s); err != nil || why != "" {
		s.stop(ChangedSinceReview, "%s", why)
		return err
	}
	if !p.mayWrite(s) {
		d := p.work.Policy.Decide(s.Path)
		s.stop(Refused, "the policy says %s (%s)", d.Permission, d.Reason)
		return nil
	}
	resume(p.work, s)
	if err := forgiveCleared(p.work, &s.Change); err != nil {
		return err
	}
	if !s.Fresh {
		return p.decideChanged(s)
	}
	if why := p.work.CannotPlace(&s.Change); why != "" {
		s.stop(Failed, "%s", why)
		return nil
	}
	return p.checkParent(s)
}

// decideChanged sets the outcome of a step for a path that has changed in the source.
func (p *plan) decideChanged(s *step) error {
	present, err := p.work.IsPresent(&s.Change)
	switch {
	case err != nil:
		return err
	case present || p.work.HasMerged(s.Path):
		s.isPresent()
	case s.Base != nil && s.Base.Absent && p.work.Policy.Decide(s.Path).Permission == policy.None:
		s.conflict(conflict.Hidden, "the source has an entry there that the policy hides")
	case s.Base != nil && s.Base.Absent:
		s.conflict(conflict.BothAdded, "also made in the source")
	default:
		return p.nameConflict(s)
	}
	return nil
}

// isPresent says that the source already has what the step would make.
func (s *step) isPresent() {
	s.stop(Present, "the source has it already")
	s.done = true
}

// mayWrite reports whether the present policy permits the change. changes.Work.keeps checks
// earlier policies for entries that were deleted with their directory. For others, the
// delta's entry proves that the policy permitted the write.
func (p *plan) mayWrite(s *step) bool {
	if s.Status == changes.Added && record.IsDir(s.Info.Mode) && p.work.Policy.MayMkdir(s.Path) {
		return true
	}
	return p.work.MayWrite(s.Path)
}

// checkParent detects that the directory no longer exists in the source.
func (p *plan) checkParent(s *step) error {
	if s.Status == changes.Deleted || s.Path.IsRoot() {
		return nil
	}
	dir := s.Path.Dir()
	if parent := p.at[dir]; parent != nil {
		switch parent.outcome {
		case Conflict, Refused:
			s.conflict(conflict.Directory, "its directory cannot be applied")
		}
		return nil
	}
	info, err := p.work.Stack.SourceInfo(dir)
	if err == nil && info.IsDir() {
		return nil
	}
	if err != nil && errdefs.Is(err, errdefs.Internal) {
		return err
	}
	s.conflict(conflict.Directory, "its directory no longer exists in the source")
	return nil
}

// keepDirs keeps each directory that contains a kept entry.
func (p *plan) keepDirs() {
	for _, s := range slices.Backward(p.steps) {
		if s.Status != changes.Deleted || s.outcome != Kept && s.outcome != ChangedSinceReview && s.outcome != LeftOut {
			continue
		}
		for dir := range s.Path.Ancestors() {
			if above := p.at[dir]; above != nil && above.outcome == Applied {
				above.keepFor(s)
			}
		}
	}
}

// keepFor keeps the directory of s because of the step below.
func (s *step) keepFor(below *step) {
	deleted, becameOther := s.Status == changes.Deleted, s.Status == changes.Retyped && !record.IsDir(s.Info.Mode)
	switch {
	case below.outcome == ChangedSinceReview && (deleted || becameOther):
		s.stop(ChangedSinceReview, "it contains %s, which was left out", changes.Quote(below.Path))
	case below.outcome == LeftOut && deleted:
		s.stop(LeftOut, "it contains %s, which is not deleted", changes.Quote(below.Path))
	case deleted:
		s.stop(Kept, "it contains %s, which is kept", changes.Quote(below.Path))
		s.done = true
	case becameOther:
		s.conflict(conflict.HiddenBelow, "a directory that contains %s, which the sandbox did not delete, became a %s", changes.Quote(below.Path), record.TypeName(s.Info.Mode))
	}
}

// forgiveCleared accepts that the source's directory is missing if an interrupted apply
// emptied and removed it to put c there. Nothing can be lost.
func forgiveCleared(w *changes.Work, c *changes.Change) error {
	if c.Fresh || c.Status != changes.Retyped || !record.IsDir(c.BaseMode()) {
		return nil
	}
	_, err := w.Stack.SourceInfo(c.Path)
	if errdefs.Is(err, errdefs.NotFound) {
		c.Fresh, c.Base = true, &layer.Base{Absent: true}
		return nil
	}
	return record.UnlessDenied(err)
}

// resume makes the apply continue with a directory that a killed apply made. Nothing can be
// lost.
func resume(w *changes.Work, s *step) {
	if _, s.remade = w.Unfinished[s.Path]; s.remade {
		s.Fresh, s.Base = true, &layer.Base{Absent: true}
	}
}
