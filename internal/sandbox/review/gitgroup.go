package review

import (
	"context"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// GitDirOf takes the path of what lies in a git directory apart: the directory
// called .git that is nearest to the root, and the path below it.
func GitDirOf(p vpath.Path) (dir vpath.Path, rel string, ok bool) {
	for d := range p.Ancestors() {
		if d.Base() == ".git" {
			return d, strings.TrimPrefix(string(p), string(d)+"/"), true
		}
	}
	return "", "", false
}

// Reasons of marks in the table of risks.
const (
	gitsOwnState = "git's own state"
	gitHook      = "git hook"
)

// placeGit puts a change below a git directory into one of its two groups: the
// sample hooks, which git never runs, and the record of commits, branches and
// tags. All else there is shown by itself.
func (g *grouper) placeGit(f *FileDiff, dir vpath.Path, rel string) {
	switch {
	case isSampleHook(f, rel):
		f.Group = changes.Quote(dir) + "/hooks"
		g.groups[f.Group] = &Group{Lines: []string{"sample hooks, which git does not run"}}
	case isGitRecord(f, rel):
		f.Group = changes.Quote(dir)
		g.groups[f.Group] = &Group{}
	}
}

func isSampleHook(f *FileDiff, rel string) bool {
	name, ok := strings.CutPrefix(rel, "hooks/")
	usual := f.Mark == nil || f.Mark.Reason == gitHook || f.Mark.Reason == Executable
	return ok && !strings.Contains(name, "/") && strings.HasSuffix(name, ".sample") && usual &&
		f.Status == changes.Added && f.New.Mode&record.TypeBits == unix.S_IFREG
}

// isGitRecord reports whether f is what git writes with a commit, by its exact
// place: nothing that runs or configures has such a name.
func isGitRecord(f *FileDiff, rel string) bool {
	if f.Mark != nil && f.Mark.Reason != gitsOwnState {
		return false
	}
	isFile := isPlainFile(f.Old) && isPlainFile(f.New)
	isDir := f.isDirOnly()
	top, below, _ := strings.Cut(rel, "/")
	switch top {
	case "objects":
		return isFile && isObjectFile(below) || isDir && (below == "" || below == "pack" || isFanOut(below))
	case "refs", "logs":
		return isFile || isDir
	}
	return isFile && slices.Contains([]string{"HEAD", "ORIG_HEAD", "index", "packed-refs", "COMMIT_EDITMSG", "FETCH_HEAD", "description"}, rel)
}

// isPlainFile reports whether a side is a regular file that is not executable,
// or nothing.
func isPlainFile(s *Side) bool {
	return s == nil || s.Mode&record.TypeBits == unix.S_IFREG && s.Mode&0o111 == 0
}

// isObjectFile reports whether a name below a directory of objects is that of a
// loose object or of a pack (gitrepository-layout(5)).
func isObjectFile(rel string) bool {
	dir, name, _ := strings.Cut(rel, "/")
	if isFanOut(dir) {
		return isHex(name) && (len(name) == 38 || len(name) == 62)
	}
	hash, ok := strings.CutPrefix(name, "pack-")
	hash, kind, _ := strings.Cut(hash, ".")
	return dir == "pack" && ok && isHex(hash) && (len(hash) == 40 || len(hash) == 64) &&
		slices.Contains([]string{"pack", "idx", "rev", "bitmap", "mtimes"}, kind)
}

func isFanOut(name string) bool { return len(name) == 2 && isHex(name) }

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// tellGit says in the groups of git directories what becomes of commits, branches
// and tags.
func (g *grouper) tellGit(files []FileDiff) {
	stories := map[vpath.Path]*gitStory{}
	for i := range files {
		dir, rel, ok := GitDirOf(files[i].Path)
		if !ok || g.groups[changes.Quote(dir)] == nil {
			continue
		}
		s := stories[dir]
		if s == nil {
			s = &gitStory{work: g.work, earlier: g.earlier, dir: dir, changed: map[string]*FileDiff{}}
			stories[dir] = s
		}
		s.changed[rel] = &files[i]
	}
	ctx, cancel := context.WithTimeout(context.Background(), storyPatience)
	defer cancel()
	for dir, s := range stories {
		g.groups[changes.Quote(dir)].Lines = s.lines(ctx)
	}
}
