// Package cleangit makes the clean repository of a sandbox: git's history of the source to a
// depth, without the paths that a policy does not let be read. No object of it has the content, the
// name or the id of something hidden.
//
// Cache.Make makes it with git's fast-export and fast-import, in a new repository that has the
// source's objects as alternates. Git therefore reads no configuration, hook, attribute, graft or
// replacement of the source, and runs nothing of it. The cache keeps what was made last. A Store is
// what one sandbox has of it. Package supervise mounts it.
package cleangit

import (
	"math"
	"strconv"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// version changes whenever build would make another repository of the same source.
const version = 1

// Mode says which git repository a sandbox sees: the source's, if it is empty, or a clean one, as
// "clean:DEPTH" or "clean:all".
type Mode string

// The values of --git, and what a depth may be.
const (
	sourceWord   = "source"
	cleanWord    = "clean"
	allWord      = "all"
	defaultDepth = 50
	maxDepth     = 1_000_000
)

// ParseMode reads what --git says. Errors: Invalid.
func ParseMode(text string) (Mode, error) {
	word, depth, has := strings.Cut(text, ":")
	switch {
	case text == sourceWord || text == "":
		return "", nil
	case word != cleanWord:
	case !has:
		return cleanMode(strconv.Itoa(defaultDepth)), nil
	case depth == allWord:
		return cleanMode(allWord), nil
	default:
		if n, err := strconv.Atoi(depth); err == nil && 0 < n && n <= maxDepth && strconv.Itoa(n) == depth {
			return cleanMode(depth), nil
		}
	}
	return "", errdefs.New(errdefs.Invalid, "git %s: want source, clean, clean:DEPTH with the number of commits from 1 to %d, or clean:all", vpath.Quote(text), maxDepth)
}

func cleanMode(depth string) Mode { return Mode(cleanWord + ":" + depth) }

// IsClean reports whether the sandbox has a clean repository.
func (m Mode) IsClean() bool { return m != "" }

// String returns the mode as --git has it.
func (m Mode) String() string {
	if m == "" {
		return sourceWord
	}
	return string(m)
}

// Check refuses a mode that ParseMode does not return, and a clean repository with a limit of the
// disk, which does not bound it. Errors: Invalid.
func (m Mode) Check(limited bool) error {
	if again, err := ParseMode(string(m)); err != nil || again != m {
		return errdefs.New(errdefs.Invalid, "git %s: not as agentfense writes it", vpath.Quote(string(m)))
	}
	if m.IsClean() && limited {
		return errdefs.New(errdefs.Invalid, "a clean repository (--git=clean) and a limit of the disk exclude each other: it does not bound what commands commit; leave one of them out")
	}
	return nil
}

// depth is the most commits that the repository has.
func (m Mode) depth() int {
	_, text, _ := strings.Cut(string(m), ":")
	if n, err := strconv.Atoi(text); err == nil {
		return n
	}
	return -1 // all
}

// Hides returns what a sandbox with a clean repository does not see of its source, in addition to
// what absent reports, which may be nil: all that is in .git.
func (m Mode) Hides(absent func(p vpath.Path, isDir bool) bool) func(p vpath.Path, isDir bool) bool {
	if !m.IsClean() {
		return absent
	}
	return func(p vpath.Path, isDir bool) bool {
		return p.Dir() == At || absent != nil && absent(p, isDir)
	}
}

// At is the path of the repository in the workspace.
const At vpath.Path = "/.git"

// PlaceRule shows the directory At, and nothing in it, whatever the other rules say.
var PlaceRule = policy.Rule{Pattern: string(At), Type: policy.File, Permission: policy.View, Priority: math.MaxInt32, Origin: policy.OriginFlag, Source: "--git=clean"}
