// Package gitignored knows which directories the repository of a source ignores.
package gitignored

import (
	"io"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/gitindex"
	"github.com/agentfense/agentfense/internal/transfer/ignore"
)

// What is read of ignore rules at most.
const (
	maxIgnoreFiles = 2000
	maxIgnoreBytes = 1 << 20
)

// Dirs are the directories that git ignores: by each .gitignore of the source and
// by its .git/info/exclude, with nothing below that the source's index has. The
// sandbox's own .gitignore, exclude and index do not count: a command could hide its
// changes by them. Nor does what a user's configuration of git names.
type Dirs struct {
	work    *changes.Work
	read    bool
	isOff   bool                // git ignores nothing, or it is not known what
	tracked map[vpath.Path]bool // directories with a tracked file below; nil: not known
	exclude *ignore.Matcher     // of .git/info/exclude
	rules   map[vpath.Path]*ignore.Matcher
	places  map[vpath.Path]gitPlace

	filesLeft, bytesLeft int
}

// gitPlace says what a directory is to the repository at the root.
type gitPlace uint8

const (
	gitWorkTree gitPlace = iota
	gitExcluded          // by itself, or with a directory above
	gitElse              // it belongs to a repository of its own
)

// New returns those of the source of w.
func New(w *changes.Work) *Dirs { return &Dirs{work: w} }

// Has reports whether git ignores all that is in the directory dir.
func (i *Dirs) Has(dir vpath.Path) bool {
	i.load()
	if i.isOff || dir.IsRoot() || i.tracked[dir] {
		return false
	}
	switch i.placeOf(dir) {
	case gitExcluded:
		return true
	case gitWorkTree:
		own := i.rulesOf(dir)
		return own != nil && own.ExcludesAll()
	}
	return false
}

// IsElse reports whether dir belongs to a nested repository of the source, which the
// rules of the one at the root are not about.
func (i *Dirs) IsElse(dir vpath.Path) bool {
	i.load()
	return i.placeOf(dir) == gitElse
}

// MayTrack reports whether git may track something below the directory dir.
func (i *Dirs) MayTrack(dir vpath.Path) bool {
	i.load()
	if i.tracked == nil {
		return sourceHas(i.work, vpath.Root.Child(".git"))
	}
	return i.tracked[dir] || i.IsElse(dir)
}

func (i *Dirs) placeOf(dir vpath.Path) gitPlace {
	if dir.IsRoot() {
		return gitWorkTree
	}
	if place, known := i.places[dir]; known {
		return place
	}
	place := i.placeOf(dir.Dir())
	switch {
	case place == gitElse:
	case sourceHas(i.work, dir.Child(".git")):
		place = gitElse
	case place == gitWorkTree && i.excludes(dir):
		place = gitExcluded
	}
	i.places[dir] = place
	return place
}

// excludes reports whether the rules leave out the directory dir itself: those of the
// nearest file that says something of it (gitignore(5)).
func (i *Dirs) excludes(dir vpath.Path) bool {
	for at := dir.Dir(); ; at = at.Dir() {
		rules := i.rulesOf(at)
		if rules == unreadable {
			return false
		}
		if rules != nil {
			if excluded, isMeant := rules.Match(below(dir, at), true); isMeant {
				return excluded
			}
		}
		if at.IsRoot() {
			break
		}
	}
	return i.exclude != nil && i.exclude.ExcludesEntry(dir, true)
}

// below is p as a directory above it sees it.
func below(p, above vpath.Path) vpath.Path {
	if above.IsRoot() {
		return p
	}
	return vpath.Path(strings.TrimPrefix(string(p), string(above)))
}

// rulesOf returns what the .gitignore in dir says, nil if there is none.
func (i *Dirs) rulesOf(dir vpath.Path) *ignore.Matcher {
	rules, known := i.rules[dir]
	if !known {
		rules = i.readRules(dir.Child(ignore.Names[0]))
		i.rules[dir] = rules
	}
	return rules
}

// unreadable stands for rules of which one may take a path back in: nothing below is
// taken for ignored.
var unreadable = new(ignore.Matcher)

// readRules reads a file of rules of the source.
func (i *Dirs) readRules(p vpath.Path) *ignore.Matcher {
	f, err := i.work.Stack.OpenSource(p)
	if isAbsent(err) {
		return nil
	}
	if err == nil {
		defer f.Close()
		var text []byte
		if text, err = io.ReadAll(io.LimitReader(f, ignore.MaxBytes+1)); err == nil {
			i.filesLeft--
			i.bytesLeft -= len(text)
			var rules *ignore.Matcher
			if rules, err = ignore.New(string(text)); err == nil && i.filesLeft >= 0 && i.bytesLeft >= 0 {
				return rules
			}
		}
	}
	return unreadable
}

func (i *Dirs) load() {
	if i.read {
		return
	}
	i.read = true
	i.rules, i.places = map[vpath.Path]*ignore.Matcher{}, map[vpath.Path]gitPlace{}
	i.filesLeft, i.bytesLeft = maxIgnoreFiles, maxIgnoreBytes
	x := i.work.SourceIndex(vpath.Root.Child(".git").Child("index"))
	if x == nil {
		i.isOff = true
		return
	}
	i.exclude = i.readRules(vpath.Root.Child(".git").Child("info").Child("exclude"))
	if i.isOff = i.exclude == unreadable; i.isOff {
		return
	}
	i.tracked = map[vpath.Path]bool{}
	x.Entries(func(e gitindex.Entry) {
		p, ok := gitindex.TrackedPath(vpath.Root, e.Path)
		for ; ok && !i.tracked[p]; p = p.Dir() {
			i.tracked[p] = true
			if p.IsRoot() {
				break
			}
		}
	})
}

// sourceHas reports whether the source may have something at p.
func sourceHas(w *changes.Work, p vpath.Path) bool {
	_, err := w.Stack.SourceInfo(p)
	return !isAbsent(err)
}

func isAbsent(err error) bool { return errdefs.Is(err, errdefs.NotFound) }
