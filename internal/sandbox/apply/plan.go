package sandbox

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/layer"
	"github.com/agentfense/agentfense/internal/policy"
	"github.com/agentfense/agentfense/internal/vpath"
)

// step is one change on its way into the source.
type step struct {
	change
	outcome  Outcome // Applied is what is planned, until it is done
	reason   string
	shown    FileDiff // how a review shows it
	implied  bool     // a review does not list it
	withRest bool     // left out because another change of its git directory is
	done     bool     // nothing is left to do but to drop it
	inPlace  bool     // the source's file only gets another mode
	remade   bool     // the source's directory only lacks its mode, see work.unfinished
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
	work  *work
	steps []*step
	at    map[vpath.Path]*step
	// groups are those of the changes.
	groups []Group
	// reviewed is what may be applied, nil for what is there now; gone is what of
	// it is no change any more.
	reviewed manifest
	gone     []vpath.Path
	named    []vpath.Path // that were asked for
}

// plan decides what becomes of each change, looking only. What is not as
// reviewed has it, unless that is nil, is left out. named is what was asked for.
func (w *work) plan(changes []change, reviewed manifest, named []vpath.Path) (*plan, error) {
	p := &plan{work: w, named: named, at: make(map[vpath.Path]*step, len(changes)), reviewed: reviewed}
	for _, c := range changes {
		s := &step{change: c, outcome: Applied}
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
func (p *plan) showSteps(changes []change) error {
	files, groups, err := p.work.fileDiffs(changes, manifest{})
	if err != nil {
		return err
	}
	p.groups = groups
	for _, f := range files {
		p.at[f.change.Path].shown = f
	}
	for dir := range implied(changes) {
		p.at[dir].implied = true
	}
	return nil
}

// decide settles the outcome of s as far as s alone tells, and its parent.
func (p *plan) decide(s *step) error {
	switch {
	case s.status == 0:
		s.done = true
		return nil
	case s.kept != "":
		s.stop(Kept, "%s", s.kept)
		s.done = true
		return nil
	case s.leftOut() != "":
		p.leaveOut(s, s.leftOut())
		return nil
	case s.Info.Mode&typeBits == unix.S_IFSOCK && s.status != Deleted:
		s.stop(Kept, "a socket means nothing without the process behind it")
		return nil
	}
	if why, err := p.differs(s); err != nil || why != "" {
		s.stop(ChangedSinceReview, "%s", why)
		return err
	}
	if !p.mayWrite(s) {
		d := p.work.policy.Decide(s.Path)
		s.stop(Refused, "the policy says %s (%s)", d.Permission, d.Reason)
		return nil
	}
	p.work.resume(s)
	if err := p.work.forgiveCleared(&s.change); err != nil {
		return err
	}
	if s.fresh {
		return p.checkParent(s)
	}
	return p.judge(s)
}

// judge settles the outcome of a step whose source is not what the sandbox saw.
func (p *plan) judge(s *step) error {
	present, err := p.work.isPresent(&s.change)
	switch {
	case err != nil:
		return err
	case present:
		s.stop(Present, "the source has it already")
		s.done = true
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
	if s.status == Added && isDir(s.Info.Mode) && p.work.policy.MayMkdir(s.Path) {
		return true
	}
	return p.work.policy.Decide(s.Path).Permission >= policy.Write
}

// checkParent finds a directory that is gone from the source.
func (p *plan) checkParent(s *step) error {
	if s.status == Deleted || s.Path.IsRoot() {
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
	info, err := p.work.stack.SourceInfo(dir)
	if err == nil && info.IsDir() {
		return nil
	}
	if err != nil && fault.Is(err, fault.Internal) {
		return err
	}
	s.stop(Conflict, "its directory is gone from the source")
	return nil
}

// keepDirs lets a directory survive that holds something that does.
func (p *plan) keepDirs() {
	for _, s := range slices.Backward(p.steps) {
		if s.status != Deleted || s.outcome != Kept && s.outcome != ChangedSinceReview && s.outcome != LeftOut {
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
	deleted, becameOther := s.status == Deleted, s.status == Retyped && !isDir(s.Info.Mode)
	switch {
	case below.outcome == ChangedSinceReview && (deleted || becameOther):
		s.stop(ChangedSinceReview, "it holds %s, which was left out", quote(below.Path))
	case below.outcome == LeftOut && deleted:
		s.stop(LeftOut, "it holds %s, which is not deleted", quote(below.Path))
	case deleted:
		s.stop(Kept, "it holds %s, which is kept", quote(below.Path))
		s.done = true
	case becameOther:
		s.stop(Conflict, "a directory that holds %s, which is not the sandbox's to delete, became a %s", quote(below.Path), typeName(s.Info.Mode))
	}
}

// forgiveCleared takes a directory that is gone from the source for one that
// an interrupted apply emptied and removed to put c there: there is nothing
// to lose.
func (w *work) forgiveCleared(c *change) error {
	if c.fresh || c.status != Retyped || !isDir(c.baseMode()) {
		return nil
	}
	_, err := w.stack.SourceInfo(c.Path)
	if fault.Is(err, fault.NotFound) {
		c.fresh, c.Base = true, &layer.Base{Absent: true}
		return nil
	}
	return unlessDenied(err)
}

// isPresent reports whether the source, which is not what the sandbox saw, is
// already what the change makes of it: an apply that was interrupted, or the
// same done by hand.
func (w *work) isPresent(c *change) (bool, error) {
	now, err := w.stack.SourceInfo(c.Path)
	switch {
	case fault.Is(err, fault.NotFound):
		return c.status == Deleted, nil
	case err != nil:
		return false, unlessDenied(err)
	case c.status == Deleted || now.Mode&typeBits != c.Info.Mode&typeBits:
		return false, nil
	case now.IsDir():
		return c.Base.Absent || now.Mode&stickyBits == c.Info.Mode&stickyBits, nil
	case (now.Mode^c.Info.Mode)&permOf(now.Mode) != 0:
		return false, nil
	}
	same, err := w.isSameAsSource(c.Path, now.Mode, now.Size, c.Info.Size)
	return same, unlessDenied(err)
}

// unlessDenied takes what cannot be read for something else.
func unlessDenied(err error) error {
	if fault.Is(err, fault.Denied) || fault.Is(err, fault.NotFound) || fault.Is(err, fault.Precondition) || fault.Is(err, fault.Invalid) {
		return nil
	}
	return err
}
