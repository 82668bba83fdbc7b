package gitindex

import "github.com/agentfense/agentfense/internal/lib/vpath"

// WorkTreeOf returns the work tree of the index at p. It returns false for an index of a
// linked work tree or of a submodule's git directory, because its files are elsewhere.
func WorkTreeOf(p vpath.Path) (vpath.Path, bool) {
	if p.Base() != "index" || p.Dir().Base() != ".git" {
		return "", false
	}
	return p.Dir().Dir(), true
}

// TrackedPath returns the path of the entry name. ok is false if git would not check it
// out.
func TrackedPath(root vpath.Path, name string) (p vpath.Path, ok bool) {
	if len(name) >= 2 && name[len(name)-1] == '/' {
		name = name[:len(name)-1] // a directory of a sparse index
	}
	p, err := vpath.Parse(name)
	if err != nil || p.Rel() != name || p.IsRoot() {
		return "", false
	}
	if root.IsRoot() {
		return p, true
	}
	return root + p, true
}
