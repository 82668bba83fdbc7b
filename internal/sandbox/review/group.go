package review

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review/gitignored"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// Group is several changes that a review shows as one.
//
// A change is in a group only if it lies below a directory that git ignores, that a
// tool made and that is new, or that is a cache, if Python compiled it, or if it is
// git's own record of commits. A change with a mark is in a group only where the mark is usual for
// what the group holds; the group then shows the mark. A change of a file that
// git tracks is in no group, and neither is one at which the source has changed
// since.
type Group struct {
	// Name tells the group from others of a review: the path of a directory,
	// escaped.
	Name string
	// Lines say what the group holds, without the number of its changes.
	Lines []string
	// Marks are the marks of its changes, the gravest first.
	Marks []GroupMark
	Count int // of its changes
}

// GroupMark is a mark that changes of a group have.
type GroupMark struct {
	RiskFlag
	Paths []vpath.Path // that have it
}

// IsUsual reports whether the mark tells nothing here: git writes its own state with
// each commit, and of hooks only samples are in a group.
func (m *GroupMark) IsUsual() bool { return m.Reason == gitsOwnState || m.Reason == gitHook }

// groupKind is what may be shown as one.
type groupKind struct {
	what    string // for people
	beside  []string
	inside  []string
	expects func(f *FileDiff) bool // the mark of f is usual
	isCache bool                   // with the evidence, nothing in it is anybody's work
}

// lockfiles say what node_modules holds: those of npm, yarn, pnpm and bun.
var lockfiles = []string{"package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "bun.lockb"}

// The kinds of directories that tools generate.
var (
	venvKind    = groupKind{what: "Python virtual environment", inside: []string{"pyvenv.cfg"}, expects: isInstalled}
	modulesKind = groupKind{what: "packages of a lock file", beside: lockfiles, expects: isInstalled}
	targetKind  = groupKind{what: "built by cargo", inside: []string{"CACHEDIR.TAG"}, expects: isInstalled}
	cacheKind   = groupKind{what: "cache", inside: []string{"CACHEDIR.TAG"}, expects: unmarked, isCache: true}

	compiledKind = groupKind{what: "compiled Python", expects: hasReason("compiled python")}
	ignoredKind  = groupKind{what: "git ignores it", expects: unmarked}
)

var generatedDirs = map[string]*groupKind{
	".venv": &venvKind, "venv": &venvKind, "env": &venvKind,
	"node_modules":  &modulesKind,
	"target":        &targetKind,
	".pytest_cache": &cacheKind, ".ruff_cache": &cacheKind, ".mypy_cache": &cacheKind,
}

func unmarked(f *FileDiff) bool { return f.Mark == nil }

func hasReason(reason string) func(*FileDiff) bool {
	return func(f *FileDiff) bool { return f.Mark == nil || f.Mark.Reason == reason }
}

// isInstalled reports whether the mark of f is usual for an installed package:
// its programs, and files that tools obey where they work in that package. What
// acts without being asked for by name is not, nor a link that leads somewhere.
func isInstalled(f *FileDiff) bool {
	switch {
	case f.Mark == nil:
		return true
	case f.Mark.Risk == RunsOnHost:
		reason, _, _ := strings.Cut(f.Mark.Reason, byTheLink)
		return reason == "installed program" || reason == Executable
	}
	return f.New != nil && f.New.Mode&record.TypeBits == unix.S_IFREG
}

// grouper puts changes into groups.
type grouper struct {
	work   *changes.Work
	marker *marker
	known  map[vpath.Path]*groupKind // directories by what they are, nil for others
	news   map[vpath.Path]bool
	ignore *gitignored.Dirs
	groups map[string]*Group
	what   map[string]*groupKind
	// earlier is the state that work is compared with, and was what it changed; nil: the source.
	earlier *changes.Work
	was     map[vpath.Path]*layer.Change
}

// group puts those of files into groups that belong there, and returns the
// groups by name. They say how the state w differs from earlier; nil is the source.
func group(w, earlier *changes.Work, files []FileDiff, m *marker) []Group {
	g := &grouper{
		work: w, earlier: earlier, marker: m, known: map[vpath.Path]*groupKind{}, news: map[vpath.Path]bool{},
		ignore: gitignored.New(w), groups: map[string]*Group{}, what: map[string]*groupKind{},
	}
	if earlier != nil {
		g.was = newFutureTree(earlier.Stack, earlier.Delta).delta
	}
	for i := range files {
		g.place(&files[i])
	}
	g.tellGit(files)
	return GroupsOf(files, func(name string) []string {
		if kind := g.what[name]; kind != nil {
			return []string{kind.what}
		}
		return g.groups[name].Lines
	})
}

// GroupsOf are the groups that the files name, by name. lines says what a group
// holds.
func GroupsOf(files []FileDiff, lines func(name string) []string) []Group {
	byName := map[string]*Group{}
	var list []*Group
	for i := range files {
		f := &files[i]
		if f.Group == "" {
			continue
		}
		g := byName[f.Group]
		if g == nil {
			g = &Group{Name: f.Group, Lines: lines(f.Group)}
			byName[f.Group] = g
			list = append(list, g)
		}
		g.add(f)
	}
	out := make([]Group, 0, len(list))
	for _, g := range list {
		for _, m := range g.Marks {
			slices.Sort(m.Paths)
		}
		slices.SortFunc(g.Marks, func(a, b GroupMark) int {
			return cmp.Or(cmp.Compare(b.Risk, a.Risk), cmp.Compare(a.Reason, b.Reason))
		})
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b Group) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (g *Group) add(f *FileDiff) {
	g.Count++
	if f.Mark == nil {
		return
	}
	mark := *f.Mark
	mark.Reason, _, _ = strings.Cut(mark.Reason, byTheLink)
	for i := range g.Marks {
		if g.Marks[i].RiskFlag == mark {
			g.Marks[i].Paths = append(g.Marks[i].Paths, f.Path)
			return
		}
	}
	g.Marks = append(g.Marks, GroupMark{mark, []vpath.Path{f.Path}})
}

// place puts f into its group, if it has one.
func (g *grouper) place(f *FileDiff) {
	if f.Stale || f.Status == changes.Retyped {
		return
	}
	if dir, rel, ok := GitDirOf(f.Path); ok {
		g.placeGit(f, dir, rel)
		return
	}
	for dir := range f.Path.Ancestors() {
		kind := g.kindOf(dir)
		if kind == nil {
			continue
		}
		if g.takes(dir, kind, f) {
			f.Group = changes.Quote(dir)
			g.what[f.Group] = kind
			return
		}
		break
	}
	if g.isCompiled(f) {
		f.Group = compiledGroup
		g.what[f.Group] = &compiledKind
	}
}

// takes reports whether f is in the group of the directory dir.
func (g *grouper) takes(dir vpath.Path, kind *groupKind, f *FileDiff) bool {
	if !kind.expects(f) {
		return false
	}
	if (f.Status == changes.Added || g.earlier != nil) && g.isNew(dir) {
		return true
	}
	return g.isGenerated(dir, kind) && !g.ignore.IsElse(f.Path.Dir())
}

// isGenerated reports whether a directory that the source has holds nothing but what
// tools generate: git ignores it, or it is a cache without a tracked file.
func (g *grouper) isGenerated(dir vpath.Path, kind *groupKind) bool {
	return g.ignore.Has(dir) || kind.isCache && g.hasEvidence(dir, kind, g.sourceHasFile) && !g.ignore.MayTrack(dir)
}

// compiledGroup is the group of what Python compiles, in whichever directory.
const compiledGroup = "__pycache__"

// isCompiled reports whether f is what Python compiles: new, or where git tracks
// nothing.
func (g *grouper) isCompiled(f *FileDiff) bool {
	dir := f.Path.Dir()
	return dir.Base() == compiledGroup && strings.HasSuffix(f.Path.Base(), ".pyc") && f.Mark != nil && compiledKind.expects(f) &&
		isPlainFile(f.Old) && isPlainFile(f.New) && (f.Status == changes.Added || !g.ignore.MayTrack(dir))
}

// kindOf says what the directory is, nil for one of which each change is shown.
func (g *grouper) kindOf(dir vpath.Path) *groupKind {
	if dir.IsRoot() {
		return nil
	}
	if kind, known := g.known[dir]; known {
		return kind
	}
	kind := generatedDirs[dir.Base()]
	if kind != nil && (!g.hasEvidence(dir, kind, g.hasFile) || !g.isNew(dir) && !g.isGenerated(dir, kind)) {
		kind = nil
	}
	if kind == nil && dir.Base() != compiledGroup && g.ignore.Has(dir) {
		kind = &ignoredKind
	}
	g.known[dir] = kind
	return kind
}

// hasEvidence reports whether what the tool leaves in the directory, or beside it
// or above, is there: a name alone shows nothing.
func (g *grouper) hasEvidence(dir vpath.Path, kind *groupKind, hasFile func(vpath.Path) bool) bool {
	for _, name := range kind.inside {
		if hasFile(dir.Child(name)) {
			return true
		}
	}
	for above := range dir.Ancestors() {
		for _, name := range kind.beside {
			if hasFile(above.Child(name)) {
				return true
			}
		}
	}
	return false
}

func (g *grouper) hasFile(p vpath.Path) bool {
	if c := g.made(p); c != nil {
		return c.Info.Mode&record.TypeBits == unix.S_IFREG
	}
	return g.sourceHasFile(p)
}

// made returns what the sandbox has made at p, in either state; nil for nothing.
func (g *grouper) made(p vpath.Path) *layer.Change {
	return cmp.Or(g.marker.tree.delta[p], g.was[p])
}

func (g *grouper) sourceHasFile(p vpath.Path) bool {
	return g.marker.tree.source(p).mode&record.TypeBits == unix.S_IFREG
}

// isNew reports whether the sandbox made the directory where the source has
// nothing.
func (g *grouper) isNew(dir vpath.Path) bool {
	if is, known := g.news[dir]; known {
		return is
	}
	c := g.made(dir)
	is := c != nil && record.IsDir(c.Info.Mode) && c.Base != nil && c.Base.Absent
	if is {
		_, err := g.work.Stack.SourceInfo(dir)
		is = isAbsent(err)
	}
	g.news[dir] = is
	return is
}

// Count writes a number with its unit: "1 file", "3 files".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
