package review

import (
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/risk"
)

// repository says whether git will take a directory for a repository. It does
// wherever a directory holds HEAD, and either objects and refs or a commondir
// that names where those are (is_git_directory in git's setup.c): then it runs
// what the configuration in there names as soon as somebody enters it.
type repository uint8

const (
	noRepository        repository = iota
	oldRepository                  // of the source, or called .git
	newRepository                  // the delta makes it one
	completedRepository            // with nothing but objects or refs
)

// member is a set of the names that make a directory a repository.
type member uint8

const (
	memberHEAD member = 1 << iota
	memberObjects
	memberRefs
	memberCommondir
)

// memberNames are as git has them; a file system may find them in other cases.
var memberNames = map[string]member{
	"HEAD": memberHEAD, "objects": memberObjects, "refs": memberRefs, "commondir": memberCommondir,
}

var foldedMembers = map[string]member{
	"head": memberHEAD, "objects": memberObjects, "refs": memberRefs, "commondir": memberCommondir,
}

func (n member) isRepository() bool {
	const whole = memberHEAD | memberObjects | memberRefs
	return n&whole == whole || n&memberHEAD != 0 && n&memberCommondir != 0
}

// isMember reports whether rel, below a directory, makes that a repository.
func isMember(rel string) bool { return foldedMembers[strings.ToLower(rel)] != 0 }

// foldedPath is p as the table of risks spells it.
func foldedPath(p vpath.Path) vpath.Path {
	all := risk.Spellings(p)
	return all[len(all)-1]
}

// repositoryOf returns the nearest directory above p that git will take for a
// repository, and p below it.
func (m *marker) repositoryOf(p vpath.Path) (dir vpath.Path, rel string, kind repository) {
	for d := range p.Ancestors() {
		k := m.repositoryAt(d)
		if k == noRepository && strings.EqualFold(foldedPath(d).Base(), ".git") {
			k = oldRepository
		}
		if k != noRepository {
			dir, kind = d, k
		}
	}
	if kind == noRepository {
		return "", "", noRepository
	}
	return dir, strings.TrimPrefix(strings.TrimPrefix(string(p), string(dir)), "/"), kind
}

// repositoryAt asks the tree, once for each directory.
func (m *marker) repositoryAt(dir vpath.Path) repository {
	if known, ok := m.repos[dir]; ok {
		return known
	}
	made := m.tree.made[foldedPath(dir)]
	var there member
	if made&memberHEAD != 0 || m.tree.source(dir.Child("HEAD")).isThere() {
		for name, n := range memberNames {
			if m.tree.source(dir.Child(name)).isThere() {
				there |= n
			}
		}
	}
	kind := noRepository
	switch {
	case !(made | there).isRepository():
	case there.isRepository():
		kind = oldRepository
	case made&(memberHEAD|memberCommondir) == 0:
		kind = completedRepository
	default:
		kind = newRepository
	}
	m.repos[dir] = kind
	return kind
}
