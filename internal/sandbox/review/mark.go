package sandbox

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/risk"
	"github.com/agentfense/agentfense/internal/vpath"
)

// Risk says how a changed file could act outside of the sandbox once it is
// applied.
type Risk uint8

// The risks, the gravest last.
const (
	NoRisk       Risk = iota
	TrustedLater      // tools of the host read it and do what it says
	RunsOnHost        // git, or who starts it by name, runs it
)

var (
	riskNames = [...]string{NoRisk: "", TrustedLater: "trusted later", RunsOnHost: "runs on the host"}
	riskWords = [...]string{NoRisk: "", TrustedLater: "trusted_later", RunsOnHost: "runs_on_host"}
)

// String returns the words that people see.
func (r Risk) String() string { return riskNames[r] }

// MarshalText returns the API's word.
func (r Risk) MarshalText() ([]byte, error) { return []byte(riskWords[r]), nil }

// Mark is a risk and what makes it one: "git hook".
type Mark struct {
	Risk   Risk   `json:"risk"`
	Reason string `json:"risk_reason"`
}

// executable is the reason of the mark of a file that may be run.
const executable = "executable"

// marker finds the marks of a sandbox's changes. A mark holds for whatever
// part of the changes is applied: a path counts as being there if the source
// has it or the delta makes it.
type marker struct {
	table *risk.Table
	tree  *futureTree
	repos map[vpath.Path]repository
	// aliases are made by linksTo.
	aliases aliases
}

// marks returns the marker, made at the first call.
func (w *work) marks() (*marker, error) {
	if w.marker != nil {
		return w.marker, nil
	}
	table, err := risk.New(w.sandbox.record.Marks)
	if err != nil {
		return nil, err
	}
	w.marker = &marker{table: table, tree: newFutureTree(w.stack, w.delta), repos: map[vpath.Path]repository{}}
	return w.marker, nil
}

// mark returns the mark that f deserves, nil if it is a file like any other.
func (w *work) mark(f *FileDiff) (*Mark, error) {
	m, err := w.marks()
	if err != nil {
		return nil, err
	}
	var was, is Side
	if f.Old != nil {
		was = *f.Old
	}
	if f.New != nil {
		is = *f.New
	}
	return m.of(f.Path, was.Mode, is), nil
}

// of returns the mark of a change at p from what was to what is there.
func (m *marker) of(p vpath.Path, was uint32, is Side) *Mark {
	kind := is.Mode & typeBits
	isDirChange := kind == unix.S_IFDIR || kind == 0 && isDir(was)
	mark := m.byPath(p, isDirChange)
	var more *Mark
	switch {
	case kind == unix.S_IFREG && is.Mode&0o111 != 0:
		more = &Mark{RunsOnHost, executable}
	case kind == unix.S_IFLNK:
		more = m.ofLink(p, is.Target)
		if more == nil && isDir(was) {
			more = &Mark{TrustedLater, "link instead of a directory"}
		}
	}
	if mark = graver(mark, more); mark == nil || mark.Risk < RunsOnHost {
		mark = graver(mark, m.byLinks(p, isDirChange))
	}
	return mark
}

// graver returns the graver of two marks, the first if they are equal.
func graver(a, b *Mark) *Mark {
	if a == nil || b != nil && b.Risk > a.Risk {
		return b
	}
	return a
}

// byPath returns the mark that the place of p deserves.
func (m *marker) byPath(p vpath.Path, isDir bool) *Mark {
	repo, rel, kind := m.repositoryOf(p)
	if kind == noRepository {
		return m.lookUp(p, isDir)
	}
	if isStore(rel) {
		var mark *Mark
		if !isInDotGit(p) { // where more may lie than git's objects and refs
			mark = m.lookUp(p, isDir)
		}
		if kind == completedRepository {
			mark = graver(&Mark{RunsOnHost, "makes its directory a git repository, of which git runs the configuration"}, mark)
		}
		return mark
	}
	mark := m.lookUp(vpath.Root.Child(".git").Child(rel), isDir)
	if kind == newRepository && m.tree.made[foldedPath(repo)] != 0 && isMember(rel) {
		mark = graver(&Mark{RunsOnHost, "makes its directory a git repository, of which git runs the configuration"}, mark)
	}
	return graver(mark, m.lookUp(p, isDir))
}

// lookUp asks the table.
func (m *marker) lookUp(p vpath.Path, isDir bool) *Mark {
	e, ok := m.table.At(p, isDir)
	switch {
	case !ok:
		return nil
	case e.Runs:
		return &Mark{RunsOnHost, e.Reason}
	}
	return &Mark{TrustedLater, e.Reason}
}

// isInDotGit reports whether p is below a directory called .git.
func isInDotGit(p vpath.Path) bool {
	return strings.Contains(string(foldedPath(p.Dir()))+"/", "/.git/")
}

// isStore reports whether rel, below a git directory, holds objects or refs,
// which change with every commit and name nothing that runs.
func isStore(rel string) bool {
	first, rest, _ := strings.Cut(strings.ToLower(rel), "/")
	return first == "refs" || first == "objects" && rest != "info" && !strings.HasPrefix(rest, "info/")
}
