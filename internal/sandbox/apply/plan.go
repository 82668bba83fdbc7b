package apply

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// step is one change on its way into the source.
type step struct {
	changes.Change
	outcome  Outcome // Applied is what is planned, until it is done
	reason   string
	shown    review.FileDiff // how a review shows it
	implied  bool            // a review does not list it
	withRest bool            // left out because another change of its git directory is
	done     bool            // nothing is left to do but to drop it
	inPlace  bool            // the source's file only gets another mode
	remade   bool            // the source's directory only lacks its mode, see changes.Work.Unfinished
	// overwrites says that the source was not what the sandbox saw.
	overwrites bool
	was        *layer.Base // what is replaced
	places     *layer.Base // what it makes of the source, see placing; nil if that is not known
	made       *layer.Base // what the source has now, nil if that is not known
}

func (s *step) stop(o Outcome, format string, args ...any) {
	s.outcome, s.reason = o, fmt.Sprintf(format, args...)
}

// plan is what apply will do, parents before children.
type plan struct {
	work  *changes.Work
	steps []*step
	at    map[vpath.Path]*step
	// groups are those of the changes.
	groups []review.Group
	// reviewed is what may be applied, nil for what is there now; gone is what of
	// it is no change any more.
	reviewed manifest.Manifest
	gone     []vpath.Path
	named    []vpath.Path // that were asked for
}

// newPlan decides what becomes of each change, looking only. What is not as
// reviewed has it, unless that is nil, is left out. named is what was asked for.
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

// showSteps finds out how a review shows the steps, before any is taken.
func (p *plan) showSteps(changes []changes.Change) error {
	files, groups, err := review.FileDiffs(p.work, changes, manifest.Manifest{})
	if err != nil {
		return err
	}
	p.groups = groups
	for _, f := range files {
		p.at[f.Change.Path].shown = f
	}
	for dir := range review.Implied(changes) {
		p.at[dir].implied = true
	}
	return nil
}

// decide settles the outcome of s as far as s alone tells, and its parent.
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
		s.stop(Kept, "a socket means nothing without the process behind it")
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
		return p.judge(s)
	}
	if why := p.work.CannotPlace(&s.Change); why != "" {
		s.stop(Failed, "%s", why)
		return nil
	}
	return p.checkParent(s)
}

// judge settles the outcome of a step whose source is not what the sandbox saw.
func (p *plan) judge(s *step) error {
	present, err := isPresent(p.work, &s.Change)
	switch {
	case err != nil:
		return err
	case present:
		s.stop(Present, "the source has it already")
		s.done = true
	case s.Base != nil && s.Base.Absent && p.work.Policy.Decide(s.Path).Permission == policy.None:
		s.stop(Conflict, "the source has something there that the policy hides")
	case s.Base != nil && s.Base.Absent:
		s.stop(Conflict, "made in the source, too")
	default:
		s.stop(Conflict, "changed in the source since the sandbox saw it")
	}
	return nil
}

// mayWrite asks the policy of now. The policy of then is asked by keeps, for
// what went with its directory; for all else the delta's entry is the proof
// that it let the sandbox write.
func (p *plan) mayWrite(s *step) bool {
	if s.Status == changes.Added && record.IsDir(s.Info.Mode) && p.work.Policy.MayMkdir(s.Path) {
		return true
	}
	return p.work.Policy.Decide(s.Path).Permission >= policy.Write
}

// checkParent finds a directory that is gone from the source.
func (p *plan) checkParent(s *step) error {
	if s.Status == changes.Deleted || s.Path.IsRoot() {
		return nil
	}
	dir := s.Path.Dir()
	if parent := p.at[dir]; parent != nil {
		switch parent.outcome {
		case Conflict, Refused:
			s.stop(Conflict, "its directory cannot be applied")
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
	s.stop(Conflict, "its directory is gone from the source")
	return nil
}

// keepDirs lets a directory survive that holds something that does.
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

// keepFor lets a directory survive that was to be applied, for what survives below it.
func (s *step) keepFor(below *step) {
	deleted, becameOther := s.Status == changes.Deleted, s.Status == changes.Retyped && !record.IsDir(s.Info.Mode)
	switch {
	case below.outcome == ChangedSinceReview && (deleted || becameOther):
		s.stop(ChangedSinceReview, "it holds %s, which was left out", changes.Quote(below.Path))
	case below.outcome == LeftOut && deleted:
		s.stop(LeftOut, "it holds %s, which is not deleted", changes.Quote(below.Path))
	case deleted:
		s.stop(Kept, "it holds %s, which is kept", changes.Quote(below.Path))
		s.done = true
	case becameOther:
		s.stop(Conflict, "a directory that holds %s, which is not the sandbox's to delete, became a %s", changes.Quote(below.Path), record.TypeName(s.Info.Mode))
	}
}

// forgiveCleared takes a directory that is gone from the source for one that
// an interrupted apply emptied and removed to put c there: there is nothing
// to lose.
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

// isPresent reports whether the source, which is not what the sandbox saw, is
// already what the change makes of it: an apply that was interrupted, or the
// same done by hand.
func isPresent(w *changes.Work, c *changes.Change) (bool, error) {
	now, err := w.Stack.SourceInfo(c.Path)
	switch {
	case errdefs.Is(err, errdefs.NotFound):
		return c.Status == changes.Deleted, nil
	case err != nil:
		return false, record.UnlessDenied(err)
	case c.Status == changes.Deleted || now.Mode&record.TypeBits != c.Info.Mode&record.TypeBits:
		return false, nil
	case now.IsDir():
		return c.Base.Absent || now.Mode&record.StickyBits == c.Info.Mode&record.StickyBits, nil
	case (now.Mode^c.Info.Mode)&changes.PermOf(now.Mode) != 0:
		return false, nil
	}
	same, err := w.IsSameAsSource(c.Path, now.Mode, now.Size, c.Info.Size)
	return same, record.UnlessDenied(err)
}

// resume has the apply go on with a directory that a killed one made: there is
// nothing to lose.
func resume(w *changes.Work, s *step) {
	if _, s.remade = w.Unfinished[s.Path]; s.remade {
		s.Fresh, s.Base = true, &layer.Base{Absent: true}
	}
}
