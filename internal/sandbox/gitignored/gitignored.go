// Package gitignored finds directories of packages and build outputs, such as node_modules, that
// git ignores and of which it tracks nothing.
//
// It reads the repository's files itself, within bounds and without following links in it, because
// a repository can make git start programs. What it cannot read, it does not take for ignored. It
// changes nothing.
package gitignored

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/gitindex"
	"github.com/agentfense/agentfense/internal/transfer/ignore"
)

// Candidate is a directory that may be ignored.
type Candidate struct {
	Name string // at the top of the project
	// Makers are files beside it of which one says that a tool makes the directory. Without one,
	// the directory counts only if it exists. With Needed, it never counts without one.
	Makers []string
	Needed bool
}

// In returns the names of the candidates in the directory dir that git ignores, in the order of
// the candidates. Only a work tree with a .git directory counts.
func In(dir string, candidates []Candidate) []string {
	var found []string
	var w *workTree
	for _, c := range candidates {
		if !c.counts(dir) {
			continue
		}
		if w == nil {
			if w = workTreeOf(dir); w == nil {
				return nil
			}
		}
		if w.ignores(c.Name) {
			found = append(found, c.Name)
		}
	}
	return found
}

// counts reports whether the directory is there or will be.
func (c Candidate) counts(dir string) bool {
	hasMaker := false
	for _, maker := range c.Makers {
		if info, err := os.Lstat(filepath.Join(dir, maker)); err == nil && info.Mode().IsRegular() {
			hasMaker = true
		}
	}
	info, err := os.Lstat(filepath.Join(dir, c.Name))
	switch {
	case c.Needed && !hasMaker:
		return false
	case errors.Is(err, fs.ErrNotExist):
		return hasMaker
	case err != nil || !info.IsDir():
		return false
	}
	_, err = os.Lstat(filepath.Join(dir, c.Name, gitDir)) // a separate repository
	return errors.Is(err, fs.ErrNotExist)
}

const (
	gitDir = ".git"
	// maxDepth is how far above a directory its repository is looked for.
	maxDepth = 40
)

// workTree is a directory in a repository.
type workTree struct {
	root  string     // of the repository
	below vpath.Path // the directory in it
	// rules are the .gitignore files from root down to the directory, and exclude is that of the
	// repository. nil: there is no such file.
	rules   []*ignore.Matcher
	exclude *ignore.Matcher
}

// workTreeOf returns the work tree of dir. It returns nil if dir is in no work tree, or if the
// rules cannot be read.
func workTreeOf(dir string) *workTree {
	w := &workTree{root: dir, below: vpath.Root}
	for depth := 0; ; depth++ {
		info, err := os.Lstat(filepath.Join(w.root, gitDir))
		if err == nil && !info.IsDir() || err != nil && !errors.Is(err, fs.ErrNotExist) || depth > maxDepth {
			return nil
		}
		if err == nil {
			break
		}
		if w.root == filepath.Dir(w.root) {
			return nil
		}
		w.root = filepath.Dir(w.root)
	}
	rel, err := filepath.Rel(w.root, dir)
	if err == nil {
		w.below, err = vpath.Parse(rel)
	}
	if err != nil || !w.readRules() {
		return nil
	}
	return w
}

// readRules reports whether all rules could be read.
func (w *workTree) readRules() bool {
	at := vpath.Root
	dirs := []vpath.Path{at}
	for name := range w.below.Elements() {
		at = at.Child(name)
		dirs = append(dirs, at)
	}
	for _, dir := range dirs {
		rules, ok := w.read(dir.Child(ignore.Names[0]))
		if !ok {
			return false
		}
		w.rules = append(w.rules, rules)
	}
	var ok bool
	w.exclude, ok = w.read(vpath.Root.Child(gitDir).Child("info").Child("exclude"))
	return ok
}

// read reads a file of rules, nil if it does not exist.
func (w *workTree) read(p vpath.Path) (*ignore.Matcher, bool) {
	text, err := safefs.ReadRegularIn(w.root, p.Rel(), ignore.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, true
	}
	if err != nil {
		return nil, false
	}
	rules, err := ignore.New(string(text))
	return rules, err == nil
}

// ignores reports whether git ignores the directory name, and tracks nothing in it. The nearest
// file that says something of it counts (gitignore(5)).
func (w *workTree) ignores(name string) bool {
	p := w.below.Child(name)
	ignored, meant := false, false
	from := vpath.Root.Child(name)
	above := w.below
	for i := len(w.rules) - 1; i >= 0 && !meant; i-- {
		if w.rules[i] != nil {
			ignored, meant = w.rules[i].Match(from, true)
		}
		if i > 0 {
			from = vpath.Root.Child(above.Base()) + from
			above = above.Dir()
		}
	}
	if !meant && w.exclude != nil {
		ignored, _ = w.exclude.Match(p, true)
	}
	return ignored && !w.tracks(p)
}

// tracks reports whether git may track something at or below p.
func (w *workTree) tracks(p vpath.Path) bool {
	content, err := safefs.ReadRegularIn(w.root, gitDir+"/index", gitindex.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err != nil {
		return true
	}
	x, err := gitindex.Parse(content)
	if err != nil {
		return true
	}
	tracked := false
	x.Entries(func(e gitindex.Entry) {
		at, ok := gitindex.TrackedPath(vpath.Root, e.Path)
		tracked = tracked || ok && (at.Within(p) || p.Within(at)) // at may be a directory of a sparse index
	})
	return tracked
}
