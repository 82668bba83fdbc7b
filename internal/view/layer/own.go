package layer

import "github.com/agentfense/agentfense/internal/lib/vpath"

// A program makes an own entry at a path where the policy hides the source's entry. The
// delta stores it under a separate name (vpath.OwnName), beside the entry with the plain
// name. So no operation on an own entry looks at the source. The caller decides which of
// the two shows.

// Resolve returns p with the element that has an own entry, if any, replaced by its own
// name. It ignores whether the plain entry shows.
func (s *Stack) Resolve(p vpath.Path) vpath.Path {
	at := vpath.Root
	for name := range p.Elements() {
		if !at.IsOwn() && !vpath.IsOwnName(name) {
			if _, err := s.LookupIn(at, vpath.OwnName(name)); err == nil {
				name = vpath.OwnName(name)
			}
		}
		at = at.Child(name)
	}
	return at
}

// AsSeen removes the entries that an own entry replaces, and gives the others the names
// that a program sees. It changes entries.
func AsSeen(entries []DirEntry) []DirEntry {
	own := map[string]bool{}
	for _, e := range entries {
		if vpath.IsOwnName(e.Name) {
			own[vpath.PlainName(e.Name)] = true
		}
	}
	if len(own) == 0 {
		return entries
	}
	seen := entries[:0]
	for _, e := range entries {
		switch {
		case vpath.IsOwnName(e.Name):
			e.Name = vpath.PlainName(e.Name)
		case own[e.Name]:
			continue
		}
		seen = append(seen, e)
	}
	return seen
}
