package sandbox

import (
	"cmp"
	"strings"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/vpath"
)

// The changes of a git directory belong together: a branch without its commits, or
// an index without its branch, is a damaged repository. An apply takes all of
// them or none. It places objects first and refs last, so that one that fails or is
// killed midway leaves nothing worse than objects that no ref leads to.

// checkWhole refuses paths that select a part of what changed in a git directory.
// Errors: Precondition.
func (w *work) checkWhole(changes []change, paths []vpath.Path, name string) error {
	if len(paths) == 0 {
		return nil
	}
	meant := selection(paths)
	parts := partsOfGit(changes, meant)
	if len(parts) == 0 {
		return nil
	}
	taken := markTaken(w.delta)
	for i := range w.delta {
		c := change{Change: w.delta[i], taken: taken[i]}
		dir, _, _ := gitDirOf(c.Path)
		if parts[dir] == "" || meant(c.Path) {
			continue
		}
		if err := w.classify(&c); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		if c.isListed() && (!c.isDirOnly() || c.status == Modified) {
			return fault.New(fault.Precondition,
				"apply %s: nothing applied: %s is a part of %s, whose changes are applied as a whole: name %[3]s, or discard what you do not want of it",
				name, quote(parts[dir]), quote(dir))
		}
	}
	return nil
}

// partsOfGit are the git directories that are not meant themselves, with the first
// path below that is.
func partsOfGit(changes []change, meant func(vpath.Path) bool) map[vpath.Path]vpath.Path {
	parts := map[vpath.Path]vpath.Path{}
	for _, c := range changes {
		dir, _, ok := gitDirOf(c.Path)
		if ok && meant(c.Path) && !meant(dir) && c.isListed() {
			parts[dir] = min(c.Path, cmp.Or(parts[dir], c.Path))
		}
	}
	return parts
}

// isListed reports whether the change is one to tell of: something has changed, and
// does not survive in the source.
func (c *change) isListed() bool { return c.status != 0 && c.kept == "" }

// keepWhole leaves out all changes of a git directory of which one is left out: an
// own entry, too, for what git made beside it may need it.
func (p *plan) keepWhole() {
	left := map[vpath.Path]Outcome{}
	note := func(at vpath.Path, o Outcome) {
		if dir, _, ok := gitDirOf(at); ok && left[dir] == "" {
			left[dir] = o
		}
	}
	for _, at := range p.gone {
		note(at, ChangedSinceReview)
	}
	for _, s := range p.steps {
		switch {
		case s.status == 0 || s.done:
		case s.outcome == Refused:
			note(s.Path, Conflict)
		case s.outcome == Conflict, s.outcome == ChangedSinceReview, s.outcome == Skipped, s.outcome == LeftOut:
			note(s.Path, s.outcome)
		}
	}
	if len(left) == 0 {
		return
	}
	for _, s := range p.steps {
		dir, _, _ := gitDirOf(s.Path)
		if o := left[dir]; o != "" && s.status != 0 && !s.done && s.outcome == Applied {
			s.stop(o, PartOfRepository)
			s.withRest = true
		}
	}
}

// The order in which files are placed.
const (
	rankObject = iota
	rankOther
	rankGit // the index, configuration, hooks
	rankRef
	rankHead
)

// gitRank says when the file at p is placed.
func gitRank(p vpath.Path) int {
	_, rel, ok := gitDirOf(p)
	switch {
	case !ok:
		return rankOther
	case strings.HasPrefix(rel, "objects/"):
		return rankObject
	case rel == "HEAD":
		return rankHead
	case strings.HasPrefix(rel, "refs/"), rel == "packed-refs":
		return rankRef
	}
	return rankGit
}

// isBroken reports whether another change of the git directory of s has failed.
func (a *applier) isBroken(s *step) bool {
	dir, _, ok := gitDirOf(s.Path)
	return ok && a.broken[dir]
}

// breakWhole notes that s has failed.
func (a *applier) breakWhole(s *step) {
	if dir, _, ok := gitDirOf(s.Path); ok {
		a.broken[dir] = true
	}
}
