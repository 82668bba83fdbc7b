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

// PartOfRepository is the reason at what is left out because another change of its
// git repository is.
const PartOfRepository = "the changes of a git repository are applied as a whole, and another one is left out"

// Why a path is left out of an apply of what was reviewed.
const (
	notShown   = "it was not among the changes when they were shown"
	madeAgain  = "it was applied or discarded since it was shown, and then made again"
	nowElse    = "it has changed since it was shown"
	nowGone    = "it was a change when it was shown, and is none now"
	dirLeftOut = "its directory was left out"
	mayBeMoved = "not deleted: an addition that was shown with it was left out, which may hold its content"
)

// errNotReviewed says that an entry of the delta is not what was reviewed.
var errNotReviewed = errors.New(nowElse)

// differs says why the step is not what was reviewed, "" if it is as far as can
// be told before its content is copied.
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
		return p.differsNow(s) // before the directory is emptied for it
	}
	return "", nil
}

// isDirLeftOut reports whether the step is made or undone by that of a directory
// above it, or of what takes its place, which is left out.
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

// lookAhead says what the copying would find: for a dry run, and in git
// directories, of which all is left out or nothing.
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

// holdBack keeps what would be deleted where something that was to be added is
// left out. A rename is an addition and a deletion: where the one does not come
// to pass, the other must not.
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

// findGone lists what was reviewed at and below paths and is no change any more.
func (p *plan) findGone(paths []vpath.Path) {
	wanted := changes.Selection(paths)
	for at, e := range p.reviewed {
		s := p.at[at]
		if (s == nil || s.Status == 0) && !e.Settled && !p.work.Resumed[at] && wanted(at) {
			p.gone = append(p.gone, at)
		}
	}
	slices.Sort(p.gone)
}

// goneResults are the outcomes at what findGone found.
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

// checkContent refuses a file that was written beside its place and does not hold
// what was reviewed. Nobody else has the file. Errors: errNotReviewed.
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

// checkSum refuses a content that is not what was reviewed. Errors:
// errNotReviewed.
func (p *plan) checkSum(s *step, sum string) error {
	if p.reviewed != nil && (sum == "" || sum != p.reviewed[s.Path].SHA256) {
		return errNotReviewed
	}
	return nil
}

// checkInPlace refuses to change the mode of a file of the source that does not
// hold what was reviewed. Errors: errNotReviewed.
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

// checkTarget refuses a link that leads elsewhere than was reviewed. Errors:
// errNotReviewed.
func (p *plan) checkTarget(s *step, target string) error {
	if p.reviewed != nil && record.HostPath(target).String() != p.reviewed[s.Path].Target {
		return errNotReviewed
	}
	return nil
}

// leaveOut settles the outcome of a step that no apply takes: it is refused if it
// was asked for by name.
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
