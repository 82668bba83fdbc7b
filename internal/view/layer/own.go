package layer

import "github.com/agentfense/agentfense/internal/lib/vpath"

// An own entry is one that a program made at a path where the policy hides what
// the source has. It has a name of its own in the delta (vpath.OwnName), so that
// it is beside what lower layers, or the delta itself, have by the plain name, and
// nothing of the source is ever looked at for it. Whoever asks decides which of
// the two shows.

// Resolve returns p with the own entry on the way to it, if there is one, named as
// such. What shows in its place does not count.
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

// AsSeen leaves out of a directory's entries those that an own entry takes the
// place of, and gives the others the names that a program
// sees. It changes entries.
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
