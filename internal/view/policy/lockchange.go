package policy

import "github.com/agentfense/agentfense/internal/lib/vpath"

// LockChange is what differs between two policies with the same rules: the locks that only one of
// them has.
type LockChange struct{ tree *lockNode }

// ChangedLocks compares the locks of two policies. It returns false if their rules may differ too.
func ChangedLocks(old, now *Policy) (LockChange, bool) {
	if old.root != now.root {
		return LockChange{}, false
	}
	before, after := old.locks.all(nil), now.locks.all(nil)
	var changed []Lock
	for path, l := range before {
		if after[path] != l {
			changed = append(changed, l)
		}
	}
	for path, l := range after {
		if _, was := before[path]; !was {
			changed = append(changed, l)
		}
	}
	return LockChange{newLockTree(changed)}, true
}

// Paths returns the paths at which, or below which, the two policies may decide differently. None
// of them is below another one.
func (c LockChange) Paths() []vpath.Path { return c.tree.topmost(nil) }

// Covers reports whether the two policies may decide differently at a path.
func (c LockChange) Covers(path vpath.Path) bool {
	s := c.tree.above()
	for name := range path.Elements() {
		if s.node == nil {
			break
		}
		s = s.child(name)
	}
	return s.lock != nil
}

// all adds the locks of the tree to those in to, by their paths.
func (n *lockNode) all(to map[vpath.Path]Lock) map[vpath.Path]Lock {
	if to == nil {
		to = map[vpath.Path]Lock{}
	}
	if n == nil {
		return to
	}
	if n.lock != nil {
		to[n.lock.Path] = *n.lock
	}
	for _, c := range n.children {
		c.all(to)
	}
	return to
}

// topmost appends the paths of the locks that are not below others.
func (n *lockNode) topmost(to []vpath.Path) []vpath.Path {
	if n.lock != nil {
		return append(to, n.lock.Path)
	}
	for _, c := range n.children {
		to = c.topmost(to)
	}
	return to
}
