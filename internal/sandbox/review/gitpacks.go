package review

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/githistory"
)

// errRootServer is why a server that runs as root does not ask git.
var errRootServer = errors.New("a server that runs as root does not ask git about what its clients made")

// mayAskGit reports whether git may look at the objects of the sandbox.
func mayAskGit(w *changes.Work) bool { return w.Sandbox.Stored.Served == nil || os.Geteuid() != 0 }

// openObjects opens the directories of objects that a repository has after an apply:
// those of the delta, and the source's if it has one. The caller closes them.
func openObjects(w *changes.Work, at vpath.Path) (githistory.Objects, error) {
	dirs, err := w.Stack.OpenDeltaDirs(at)
	if err != nil {
		return nil, err
	}
	objects := githistory.Objects(dirs)
	source, err := w.Stack.OpenSourceDir(at)
	switch {
	case err == nil:
		return append(objects, source), nil
	case len(dirs) > 0 && isAbsent(err):
		return objects, nil
	}
	objects.Close()
	return nil, err
}

// readPacks asks git for the new commits, if the sandbox made packs: git gc, fetch
// and clone do. It notes why that was not possible.
func (s *gitStory) readPacks(ctx context.Context) {
	if !s.hasPacks() {
		return
	}
	var tips []string
	known := s.known()
	for _, id := range append(s.after.Tips(), s.headID) {
		if _, isOld := slices.BinarySearch(known, id); id != "" && !isOld {
			tips = append(tips, id)
		}
	}
	if len(tips) == 0 {
		return
	}
	if !mayAskGit(s.work) {
		s.unread = errRootServer
		return
	}
	s.packed, s.unread = s.askGit(ctx, tips, known)
}

// askGit returns the commits that the tips lead to and the known do not.
func (s *gitStory) askGit(ctx context.Context, tips, known []string) (map[string]githistory.Commit, error) {
	shallow, err := s.readShallow()
	if err != nil {
		return nil, err
	}
	objects, err := openObjects(s.work, s.dir+"/objects")
	if err != nil {
		return nil, err
	}
	defer objects.Close()
	if s.earlier != nil { // which has what is known
		more, err := s.earlier.Stack.OpenDeltaDirs(s.dir + "/objects")
		if err != nil {
			return nil, err
		}
		objects = append(objects, more...)
	}
	// Git follows links and alternates, by which a client of a server could read what
	// another one has.
	isServed := s.work.Sandbox.Stored.Served != nil
	return githistory.Commits(ctx, objects, tips, known, shallow, maxStoryCommits+1, isServed)
}

// hasPacks reports whether the delta adds a pack.
func (s *gitStory) hasPacks() bool {
	for rel, f := range s.changed {
		if strings.HasPrefix(rel, "objects/pack/") && strings.HasSuffix(rel, ".idx") && f.New != nil {
			return true
		}
	}
	return false
}

// known are the objects that the refs named before, in order.
func (s *gitStory) known() []string {
	known := s.before.Tips()
	if s.oldHeadID != "" {
		known = append(known, s.oldHeadID)
		slices.Sort(known)
	}
	return known
}

// readShallow returns the commits at which the history ends after an apply.
func (s *gitStory) readShallow() ([]string, error) {
	if f := s.inState["shallow"]; f != nil {
		text, err := readRef(s.work, f)
		return githistory.ParseShallow(text), err
	}
	dir, err := s.work.Stack.OpenSourceDir(s.dir)
	if isAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return githistory.ReadShallow(int(dir.Fd()))
}
