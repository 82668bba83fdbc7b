package apply

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review/keeping"
)

// Keeper leaves out of an apply what a person must review, for package keep.
type Keeper struct {
	Whole bool // apply all of the paths, or none
}

// restrict leaves out the steps that must be reviewed. It looks at the changes as they are now,
// under the apply lock: what was planned for them may be old. A nil Keeper leaves out none.
func (k *Keeper) restrict(p *plan) error {
	if k == nil {
		return nil
	}
	p.kept, p.whole = true, k.Whole
	for _, s := range p.steps {
		if s.Status == 0 || s.done || s.outcome != Applied && s.outcome != Conflict {
			continue
		}
		if why := k.whyNot(p, s); why != "" {
			s.stop(Skipped, "%s", why)
			continue
		}
		if keys := s.shown.keeping.Keys; len(keys) > 0 {
			if err := p.mergeKeys(s, keys); err != nil {
				return err
			}
		}
	}
	k.hold(p)
	return nil
}

// whyNot says why a step must be reviewed.
func (k *Keeper) whyNot(p *plan, s *step) string {
	switch {
	case s.implied:
		return k.whyNotDir(p, s)
	case !s.shown.keeping.Rule: // also of what a review does not show
		return "no rule with apply: keep matches it any more"
	}
	return s.shown.keeping.Waits
}

// whyNotDir is whyNot of a directory that was made for what is kept, or removed after it.
func (k *Keeper) whyNotDir(p *plan, s *step) string {
	_, byRule := p.work.Policy.KeptBy(s.Path)
	switch {
	case s.Status == changes.Deleted && byRule:
		return ""
	case s.Status != changes.Added || !record.IsDir(s.Info.Mode):
		return "it is a directory that was in the source before"
	case s.Info.Mode&0o002 != 0:
		return "everybody could write in the directory"
	}
	return ""
}

// hold leaves out what is in a directory that is left out, and everything if all of it cannot be
// applied.
func (k *Keeper) hold(p *plan) {
	for _, s := range p.steps {
		above := p.at[s.Path.Dir()]
		if s.isPlanned() && s.Status != changes.Deleted && above != nil && above.outcome == Skipped {
			s.stop(Skipped, "its directory waits: %s", above.reason)
		}
	}
	if !k.Whole || p.isComplete() {
		return
	}
	for _, s := range p.steps {
		if s.isPlanned() {
			s.stop(Skipped, "the files of a database are kept together, and another one waits")
		}
	}
}

// isPlanned reports whether the step is to be executed.
func (s *step) isPlanned() bool { return s.Status != 0 && !s.done && s.outcome == Applied }

// isComplete reports whether each step is to be executed, or needs not be.
func (p *plan) isComplete() bool {
	return !slices.ContainsFunc(p.steps, func(s *step) bool { return s.Status != 0 && !s.done && s.outcome != Applied })
}

// mergeKeys plans what the source's file becomes with the listed keys of the delta's. If
// that cannot be, the step waits.
func (p *plan) mergeKeys(s *step, keys []string) error {
	now, err := p.baseNow(s)
	if err == nil {
		s.merging, err = keeping.Merge(p.work, &s.Change, now, keys)
	}
	switch {
	case errdefs.Is(err, errdefs.Exhausted):
		return err
	case err != nil:
		s.stop(Skipped, "%s", record.UnwrapErrno(err))
	case len(s.merging.Keys) == 0:
		s.stop(Skipped, "")
	default:
		s.stop(Applied, "")
		s.moved = !s.Fresh
		s.Base, s.Fresh = now, true
	}
	return nil
}

// stageMerged stages what a merge has made.
func (a *applier) stageMerged(s *step, e changes.Entry, l changes.Look) (*changes.Staged, error) {
	l.Mode, l.Mtime = s.merging.Mode, s.merging.Mtime
	file, err := e.StageText(s.merging.Text, l)
	if err != nil {
		return nil, err
	}
	file.Sum = s.merging.Sum
	return file, a.plan.checkSum(s, s.merging.Sum)
}

// keepsRest reports whether the delta keeps its file after the step, because it has more changes.
func (s *step) keepsRest() bool { return s.merging != nil && s.merging.Rest }

// placedMode is the mode of the regular file that the step places.
func (s *step) placedMode() uint32 {
	if s.merging != nil {
		return unix.S_IFREG | s.merging.Mode
	}
	return unix.S_IFREG | s.Info.Mode&record.PermBits
}
