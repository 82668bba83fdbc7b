package apply

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

// PartOfRepository is the reason of a path that is left out because another change of its
// git repository is.
const PartOfRepository = "the changes of a git repository are applied as a whole, and another one is left out"

// The reasons of paths that an apply of reviewed changes leaves out.
const (
	notShown   = "it was not among the changes when they were shown"
	madeAgain  = "it was applied or discarded since it was shown, and then made again"
	nowElse    = "it has changed since it was shown"
	nowGone    = "it was a change when it was shown, and no longer is"
	dirLeftOut = "its directory was left out"
	mayBeMoved = "not deleted: an addition that was shown with it was left out and may have its content"
)

// errNotReviewed means that an entry of the delta differs from the reviewed one.
var errNotReviewed = errors.New(nowElse)

// differs returns the reason why the step differs from the reviewed one. It returns "" if
// it finds no difference without copying the content.
func (p *plan) differs(s *step) (string, error) {
	if p.reviewed == nil {
		return "", nil
	}
	want, shown := p.reviewed[s.Path]
	switch {
	case p.isDirLeftOut(s):
		return dirLeftOut, nil
	case !shown:
		return notShown, nil
	case want.Settled:
		return madeAgain, nil
	}
	have := manifest.EntryOf(&s.Change, "")
	if have.Mode&record.TypeBits == unix.S_IFLNK && have.Mode == want.Mode {
		target, err := p.work.Stack.Readlink(s.Path)
		if err != nil {
			return nowElse, record.UnlessDenied(err)
		}
		have.Target = record.HostPath(target).String()
	}
	if have.Mode != want.Mode || have.Target != want.Target {
		return nowElse, nil
	}
	if s.Status == changes.Retyped && record.IsDir(s.BaseMode()) {
		return p.differsNow(s) // check before the directory is emptied
	}
	return "", nil
}

// isDirLeftOut reports whether the step depends on a step for a parent directory, or for
// its replacement, that is left out.
func (p *plan) isDirLeftOut(s *step) bool {
	if above := p.at[s.Path.Dir()]; s.Status != changes.Deleted && above != nil && above != s {
		return above.outcome == ChangedSinceReview
	}
	above := p.at[s.Taken]
	return s.Taken != "" && above != nil && above.Status == changes.Retyped && above.outcome == ChangedSinceReview
}

// differsNow is differs for the content, too.
func (p *plan) differsNow(s *step) (string, error) {
	if p.reviewed == nil || s.Status == changes.Deleted || s.Info.Mode&record.TypeBits != unix.S_IFREG {
		return "", nil
	}
	sum, err := manifest.SumOfDelta(p.work, s.Path)
	if err != nil {
		return nowElse, record.UnlessDenied(err)
	}
	if sum == "" || sum != p.reviewed[s.Path].SHA256 {
		return nowElse, nil
	}
	return "", nil
}

// lookAhead compares contents before they are copied: for a dry run, and for git
// directories, which are applied completely or not at all.
func (p *plan) lookAhead(dryRun bool) error {
	for _, s := range p.steps {
		_, _, inGit := review.GitDirOf(s.Path)
		if s.outcome != Applied || s.Status == 0 || !dryRun && !inGit {
			continue
		}
		why, err := p.differsNow(s)
		if err != nil {
			return err
		}
		if why != "" {
			s.stop(ChangedSinceReview, "%s", why)
		}
	}
	p.holdBack()
	return nil
}

// holdBack keeps deletions if an addition is left out. A rename is an addition and a
// deletion: without the addition, the deletion must not happen.
func (p *plan) holdBack() {
	missing := slices.ContainsFunc(p.gone, func(at vpath.Path) bool { return isAddedFile(p.reviewed[at]) })
	for _, s := range p.steps {
		missing = missing || s.outcome == ChangedSinceReview && !s.withRest && isAddedFile(p.reviewed[s.Path])
	}
	if !missing {
		return
	}
	for _, s := range p.steps {
		if s.Status != 0 && !s.done && s.outcome == Applied && (s.Status == changes.Deleted || s.Status == changes.Retyped && record.IsDir(s.BaseMode())) {
			s.stop(Skipped, mayBeMoved)
		}
	}
}

func isAddedFile(e manifest.Entry) bool { return e.Added && !record.IsDir(e.Mode) }

// findGone finds the reviewed changes that are wanted and are no longer changes.
func (p *plan) findGone(wanted func(vpath.Path) bool) {
	for at, e := range p.reviewed {
		s := p.at[at]
		if (s == nil || s.Status == 0) && !e.Settled && !p.work.Resumed[at] && wanted(at) {
			p.gone = append(p.gone, at)
		}
	}
	slices.Sort(p.gone)
}

// goneResults returns the outcomes of the paths that findGone found.
func (p *plan) goneResults() []PathResult {
	var list []PathResult
	for _, at := range p.gone {
		r := PathResult{Path: at, Status: changes.Modified, Outcome: ChangedSinceReview, Reason: nowGone}
		switch e := p.reviewed[at]; {
		case e.Mode == 0:
			r.Status = changes.Deleted
		case e.Added:
			r.Status = changes.Added
		}
		list = append(list, r)
	}
	return list
}

// checkContent checks that a staged file has the reviewed content. No other process can
// change the staged file. Errors: errNotReviewed.
func (p *plan) checkContent(s *step, file *changes.Staged) error {
	if p.reviewed == nil {
		return nil
	}
	if _, err := file.File.Seek(0, 0); err != nil {
		return err
	}
	var err error
	if file.Sum, err = manifest.SumOf(file.File); err != nil {
		return err
	}
	return p.checkSum(s, file.Sum)
}

// checkSum checks that sum is the reviewed one. Errors: errNotReviewed.
func (p *plan) checkSum(s *step, sum string) error {
	if p.reviewed != nil && (sum == "" || sum != p.reviewed[s.Path].SHA256) {
		return errNotReviewed
	}
	return nil
}

// checkInPlace checks, before only a mode changes, that the source's file has the reviewed
// content. Errors: errNotReviewed.
func (p *plan) checkInPlace(s *step) error {
	if p.reviewed == nil {
		return nil
	}
	f, err := p.work.Stack.OpenSource(s.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	sum, err := manifest.SumOf(f)
	if err != nil {
		return err
	}
	return p.checkSum(s, sum)
}

// checkTarget checks that a link has the reviewed target. Errors: errNotReviewed.
func (p *plan) checkTarget(s *step, target string) error {
	if p.reviewed != nil && record.HostPath(target).String() != p.reviewed[s.Path].Target {
		return errNotReviewed
	}
	return nil
}

// leaveOut sets the outcome of a step that is never applied: Refused if the caller named
// its path, else LeftOut.
func (p *plan) leaveOut(s *step, why string) {
	at := s.Path
	if s.IsOwn() {
		at = s.Path.OwnRoot().Plain()
	}
	if slices.ContainsFunc(p.named, func(named vpath.Path) bool { return named.Within(at) }) {
		s.stop(Refused, "%s", why)
		return
	}
	s.stop(LeftOut, "%s", why)
}
