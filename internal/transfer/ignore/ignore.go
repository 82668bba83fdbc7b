// Package ignore says which files an upload leaves out.
//
// Patterns mean what gitignore(5) says, to the corner cases of git's own
// matching: they are bytes, case counts, the last pattern that matches decides,
// "!" takes a path back in, and nothing below a directory that is left out can
// be taken back in. A line that is no valid pattern matches nothing, as in git.
// Only the files Names at the root of a codebase count, none deeper down.
//
// # How a view would use it
//
// What an upload would leave out is to be absent from the view of a sandbox on
// a linked directory, and yet may be created there (DESIGN §8). A policy cannot
// say that: none forbids to create, and its rules are the user's. It is a matter
// of what the source holds. So the layer is to be given the Matcher as a filter
// on the source alone, asked at look-up and listing with ExcludesEntry: an entry
// that is left out counts as not being there. What the sandbox creates in its
// place is recorded as made where nothing was, and then apply finds the host's
// own file there: the conflict that is wanted, by the rules that hold already.
// For the same reason a directory that still holds such a file survives its
// deletion at apply. The patterns are to be kept in the sandbox's record: were
// they read anew, an edit of .gitignore would make files appear and vanish
// under a running command.
//
// The package does no I/O. A Matcher is immutable and safe for concurrent use.
package ignore

import (
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/vpath"
)

// Names are the files at the root that hold patterns, the more binding last.
var Names = [...]string{".gitignore", ".sandboxignore"}

// Defaults are the patterns that come before those files for a linked directory
// that leaves out what an upload does.
const Defaults = ".git\n" + UploadDefaults

// UploadDefaults are the patterns that come before those files for an upload, which
// takes the repository along.
const UploadDefaults = `__pycache__
*.pyc
*.pyo
.DS_Store
Thumbs.db
node_modules
.venv
venv
.env
*.egg-info
.tox
.pytest_cache
.mypy_cache
.ruff_cache
`

// MaxBytes bounds the patterns of a Matcher, MaxLineBytes each of them: a path
// costs at most its length times their length in steps.
const (
	MaxBytes     = 128 << 10
	MaxLineBytes = 1 << 10
)

// Matcher is a list of patterns, compiled.
type Matcher struct {
	patterns []pattern
	literals map[string][]int // a name -> the patterns that are just it, in order
	others   []int            // the other patterns, in order
}

// New compiles the texts of files like .gitignore; the patterns of a later one
// are more binding. Errors: Invalid for more than MaxBytes or MaxLineBytes.
func New(texts ...string) (*Matcher, error) {
	m := &Matcher{literals: map[string][]int{}}
	size := 0
	for _, text := range texts {
		if size += len(text); size > MaxBytes {
			return nil, fault.New(fault.Invalid, "ignore patterns: %d bytes are more than %d", size, MaxBytes)
		}
		for line := range strings.SplitSeq(strings.TrimPrefix(text, byteOrderMark), "\n") {
			p, ok := parseLine(line)
			switch {
			case ok && len(line) > MaxLineBytes:
				return nil, fault.New(fault.Invalid, "ignore patterns: a pattern of %d bytes is longer than %d", len(line), MaxLineBytes)
			case ok:
				m.add(p)
			}
		}
	}
	return m, nil
}

const byteOrderMark = "\ufeff"

func (m *Matcher) add(p pattern) {
	i := len(m.patterns)
	m.patterns = append(m.patterns, p)
	if p.isName() {
		m.literals[p.prefix] = append(m.literals[p.prefix], i)
	} else {
		m.others = append(m.others, i)
	}
}

// Excludes reports whether p is left out, itself or with a directory that it
// lies in. isDir says what p is; a symbolic link is no directory, wherever it
// leads. The root is never left out.
func (m *Matcher) Excludes(p vpath.Path, isDir bool) bool {
	for above := range p.Ancestors() {
		if m.ExcludesEntry(above, true) {
			return true
		}
	}
	return m.ExcludesEntry(p, isDir)
}

// ExcludesEntry is Excludes for who knows that p's directory is not left out.
func (m *Matcher) ExcludesEntry(p vpath.Path, isDir bool) bool {
	if p.IsRoot() {
		return false
	}
	last := m.lastMatch(p, isDir)
	return last >= 0 && !m.patterns[last].negated
}

// lastMatch returns the index of the last pattern that matches p, -1 for none.
func (m *Matcher) lastMatch(p vpath.Path, isDir bool) int {
	best, name := -1, p.Base()
	for _, i := range m.literals[name] {
		if isDir || !m.patterns[i].dirOnly {
			best = i
		}
	}
	for _, i := range slices.Backward(m.others) {
		if i < best {
			break
		}
		if pt := &m.patterns[i]; (isDir || !pt.dirOnly) && pt.matches(p, name) {
			return i
		}
	}
	return best
}
