package review

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/risk"
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

// Risks returns the risks but NoRisk, the gravest last.
func Risks() []Risk { return []Risk{TrustedLater, RunsOnHost} }

// String returns the words that people see.
func (r Risk) String() string { return riskNames[r] }

// MarshalText returns the API's word.
func (r Risk) MarshalText() ([]byte, error) { return []byte(riskWords[r]), nil }

// RiskFlag is a risk and what makes it one: "git hook".
type RiskFlag struct {
	Risk   Risk   `json:"risk"`
	Reason string `json:"risk_reason"`
}

// Executable is the reason of the mark of a file that may be run.
const Executable = "executable"

// marker finds the marks of a sandbox's changes. A mark holds for whatever
// part of the changes is applied: a path counts as being there if the source
// has it or the delta makes it.
type marker struct {
	table *risk.Table
	tree  *futureTree
	repos map[vpath.Path]repository
	// source is the directory of the host that has the tree. Of a mount it counts for marks: it may
	// be one of an agent, where each file has a meaning.
	source vpath.Path
	mount  vpath.Path // the place of a mount: the name of its directory, if a link leads to it; "" for the workspace
	// aliases are made by linksTo.
	aliases aliases
}

// marks returns the marker of the changes that were read.
func marks(w *changes.Work) (*marker, error) {
	table, err := risk.New(w.Sandbox.Stored.Marks)
	if err != nil {
		return nil, err
	}
	m := &marker{
		table: table, tree: newFutureTree(w.Stack, w.Delta), repos: map[vpath.Path]repository{},
		source: vpath.Path(w.Sandbox.Stored.Source.Path),
	}
	if w.Sandbox.Mount() != "" {
		m.mount = vpath.Path(w.Sandbox.Stored.Workspace)
	}
	return m, nil
}

// ofDiff returns the mark that f deserves, nil if it is a file like any other.
func (m *marker) ofDiff(f *FileDiff) *RiskFlag {
	var was, is Side
	if f.Old != nil {
		was = *f.Old
	}
	if f.New != nil {
		is = *f.New
	}
	return m.of(f.Path, was.Mode, is)
}

// of returns the mark of a change at p from what was to what is there.
func (m *marker) of(p vpath.Path, was uint32, is Side) *RiskFlag {
	kind := is.Mode & record.TypeBits
	isDirChange := kind == unix.S_IFDIR || kind == 0 && record.IsDir(was)
	mark := m.byPath(p, isDirChange)
	var more *RiskFlag
	switch {
	case kind == unix.S_IFREG && is.Mode&0o111 != 0:
		more = &RiskFlag{RunsOnHost, Executable}
	case kind == unix.S_IFLNK:
		more = m.ofLink(p, is.Target)
		if more == nil && record.IsDir(was) {
			more = &RiskFlag{TrustedLater, "link instead of a directory"}
		}
	}
	if mark = graver(mark, more); mark == nil || mark.Risk < RunsOnHost {
		mark = graver(mark, m.byLinks(p, isDirChange))
	}
	return mark
}

// graver returns the graver of two marks, the first if they are equal.
func graver(a, b *RiskFlag) *RiskFlag {
	if a == nil || b != nil && b.Risk > a.Risk {
		return b
	}
	return a
}

// byPath returns the mark that the place of p deserves.
func (m *marker) byPath(p vpath.Path, isDir bool) *RiskFlag {
	repo, rel, kind := m.repositoryOf(p)
	if kind == noRepository {
		return m.lookUp(p, isDir)
	}
	if isStore(rel) {
		var mark *RiskFlag
		if !isInDotGit(p) && !(m.mount != "" && isInDotGit(m.hostPath(p))) { // where more may lie than git's objects and refs
			mark = m.lookUp(p, isDir)
		}
		if kind == completedRepository {
			mark = graver(&RiskFlag{RunsOnHost, "makes its directory a git repository, of which git runs the configuration"}, mark)
		}
		return mark
	}
	mark := m.lookUp(vpath.Root.Child(".git").Child(rel), isDir)
	if kind == newRepository && m.tree.made[foldedPath(repo)] != 0 && isMember(rel) {
		mark = graver(&RiskFlag{RunsOnHost, "makes its directory a git repository, of which git runs the configuration"}, mark)
	}
	return graver(mark, m.lookUp(p, isDir))
}

// lookUp asks the table.
func (m *marker) lookUp(p vpath.Path, isDir bool) *RiskFlag {
	mark := m.ask(p, isDir)
	if m.mount != "" {
		mark = graver(mark, m.onHost(p, isDir))
	}
	return mark
}

// onHost asks the table for the path p of the source on the host.
func (m *marker) onHost(p vpath.Path, isDir bool) *RiskFlag {
	mark := m.ask(m.hostPath(p), isDir)
	if m.mount != "" {
		mark = graver(mark, m.ask(p.Rebase(vpath.Root, m.mount), isDir))
	}
	return mark
}

func (m *marker) hostPath(p vpath.Path) vpath.Path { return p.Rebase(vpath.Root, m.source) }

func (m *marker) ask(p vpath.Path, isDir bool) *RiskFlag {
	e, ok := m.table.At(p, isDir)
	switch {
	case !ok:
		return nil
	case e.Runs:
		return &RiskFlag{RunsOnHost, e.Reason}
	}
	return &RiskFlag{TrustedLater, e.Reason}
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
