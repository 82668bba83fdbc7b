// Package ignore says which files an upload leaves out.
//
// Patterns have the meaning of gitignore(5), including the corner cases of git's own matching: they
// are bytes, case counts, the last pattern that matches decides, and "!" includes a path again, but
// not below an excluded directory. A malformed pattern matches nothing, as in git. An upload uses
// only the files Names at the root of a codebase. A review uses Match to ask whether git would
// ignore a file.
//
// The package does no I/O. A Matcher is immutable and safe for concurrent use.
package ignore

import (
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Names are the ignore files at the root; patterns of a later one override those of an earlier one.
var Names = [...]string{".gitignore", ".sandboxignore"}

// Defaults are the patterns before those files, for a linked directory with ignore_files.
const Defaults = ".git\n" + UploadDefaults

// UploadDefaults are the patterns before those files, for an upload, which includes the repository.
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

// MaxBytes limits the patterns of a Matcher, MaxLineBytes each of them: to match a path takes at
// most its length times their length in steps.
const (
	MaxBytes     = 128 << 10
	MaxLineBytes = 1 << 10
)

// Matcher is a compiled list of patterns.
type Matcher struct {
	patterns []pattern
	literals map[string][]int // name -> the patterns that equal it, in order
	others   []int            // the other patterns, in order
}

// New compiles the texts of ignore files; patterns of a later one override those of an earlier one.
// Errors: Invalid for more than MaxBytes or MaxLineBytes.
func New(texts ...string) (*Matcher, error) {
	m := &Matcher{literals: map[string][]int{}}
	size := 0
	for _, text := range texts {
		if size += len(text); size > MaxBytes {
			return nil, errdefs.New(errdefs.Invalid, "ignore patterns: %d bytes are more than %d", size, MaxBytes)
		}
		for line := range strings.SplitSeq(strings.TrimPrefix(text, byteOrderMark), "\n") {
			p, ok := parseLine(line)
			switch {
			case ok && len(line) > MaxLineBytes:
				return nil, errdefs.New(errdefs.Invalid, "ignore patterns: a pattern of %d bytes is longer than %d", len(line), MaxLineBytes)
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

// Excludes reports whether p, or a directory above it, is left out. isDir says whether p is a
// directory; a symbolic link is not one. The root is never left out.
func (m *Matcher) Excludes(p vpath.Path, isDir bool) bool {
	for above := range p.Ancestors() {
		if m.ExcludesEntry(above, true) {
			return true
		}
	}
	return m.ExcludesEntry(p, isDir)
}

// ExcludesEntry is Excludes for a p whose parent directory is not left out.
func (m *Matcher) ExcludesEntry(p vpath.Path, isDir bool) bool {
	if p.IsRoot() {
		return false
	}
	excluded, _ := m.Match(p, isDir)
	return excluded
}

// Match reports whether a pattern matches p, and whether the last one that does leaves it out. It
// does not check the directories above.
func (m *Matcher) Match(p vpath.Path, isDir bool) (excluded, isMeant bool) {
	last := m.lastMatch(p, isDir)
	return last >= 0 && !m.patterns[last].negated, last >= 0
}

// ExcludesAll reports whether the patterns leave out every entry of their directory, as tools write
// them into their caches.
func (m *Matcher) ExcludesAll() bool {
	all := false
	for i := range m.patterns {
		p := &m.patterns[i]
		if p.negated {
			return false
		}
		all = all || p.suffix && p.prefix == "" && !p.dirOnly
	}
	return all
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
