package apply

import (
	"os"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

// stageFrom stages src, and checks that it is the reviewed content.
func (a *applier) stageFrom(s *step, e changes.Entry, src *os.File, l changes.Look) (*changes.Staged, error) {
	if s.merging != nil {
		return a.stageMerged(s, e, l)
	}
	out, err := a.work.Outgoing(s.Path, src)
	if err != nil {
		return nil, err
	}
	if out != nil {
		defer out.File.Close()
		file, err := e.Stage(out.File, l)
		if err != nil {
			return nil, err
		}
		file.Sum = out.Sum
		return file, a.plan.checkSum(s, out.Sum)
	}
	file, err := e.Stage(src, l)
	if err != nil {
		return nil, err
	}
	return file, a.plan.checkContent(s, file)
}

// keepWhole leaves out all changes of a git directory if one of them is left out. That
// includes own entries, because other files of the repository may need them.
func (p *plan) keepWhole() {
	left := map[vpath.Path]Outcome{}
	note := func(at vpath.Path, o Outcome) {
		if dir, _, ok := review.GitDirOf(at); ok && left[dir] == "" {
			left[dir] = o
		}
	}
	for _, at := range p.gone {
		note(at, ChangedSinceReview)
	}
	for _, s := range p.steps {
		switch {
		case s.Status == 0 || s.done:
		case s.outcome == Refused:
			note(s.Path, Conflict)
		case s.outcome == Conflict, s.outcome == ChangedSinceReview, s.outcome == Skipped, s.outcome == LeftOut, s.outcome == Failed:
			note(s.Path, s.outcome)
		}
	}
	if len(left) == 0 {
		return
	}
	for _, s := range p.steps {
		dir, _, _ := review.GitDirOf(s.Path)
		if o := left[dir]; o != "" && s.Status != 0 && !s.done && s.outcome == Applied {
			s.stop(o, PartOfRepository)
			s.withRest = true
		}
	}
}

// isBroken reports whether another change of the git directory of s has failed.
func (a *applier) isBroken(s *step) bool {
	dir, _, ok := review.GitDirOf(s.Path)
	return ok && a.broken[dir]
}

// breakWhole records that s has failed.
func (a *applier) breakWhole(s *step) {
	if dir, _, ok := review.GitDirOf(s.Path); ok {
		a.broken[dir] = true
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

// gitRank returns the rank of the file at p.
func gitRank(p vpath.Path) int {
	_, rel, ok := review.GitDirOf(p)
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
