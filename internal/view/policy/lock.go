package policy

import "github.com/agentfense/agentfense/internal/lib/vpath"

// Lock makes a path, and everything below it, at most Read above all rules, whether it exists or
// not: another sandbox has it locked. It never shows what the rules hide.
type Lock struct {
	Path vpath.Path
	// Reason says it for people: who has the lock.
	Reason string
	// Holder is the policy of the sandbox that has the lock: what it does not let be written is
	// not locked. nil: everything is.
	Holder *Policy
}

// lockNode is a directory above a lock, or a locked path.
type lockNode struct {
	children map[string]*lockNode
	lock     *Lock // on the path itself; nil: it has none
}

// lockState is what locks say of one path.
type lockState struct {
	node *lockNode  // nil: there is no lock at the path or below it
	lock *Lock      // at the path or above it; nil: it has none
	path vpath.Path // with a lock that has a holder: the path
}

// above begins with what the locks say of the lock's own path.
func (n *lockNode) above() lockState {
	if n.lock == nil {
		return lockState{node: n}
	}
	return lockState{n, n.lock, n.lock.Path}
}

// WithLocks returns the policy with these locks in place of those that it has. The rules are not
// compiled again.
func (p *Policy) WithLocks(locks []Lock) *Policy {
	locked := *p
	locked.locks = nil
	if len(locks) > 0 {
		locked.locks = newLockTree(locks)
	}
	return &locked
}

func newLockTree(locks []Lock) *lockNode {
	root := &lockNode{}
	for _, l := range locks {
		n := root
		for name := range l.Path.Elements() {
			c := n.children[name]
			if c == nil {
				c = &lockNode{}
				if n.children == nil {
					n.children = map[string]*lockNode{}
				}
				n.children[name] = c
			}
			n = c
		}
		if n.lock == nil {
			n.lock = &l
		}
	}
	return root
}

// lockStart returns what the locks say of the workspace itself.
func (p *Policy) lockStart() lockState {
	if p.locks == nil {
		return lockState{}
	}
	return p.locks.above()
}

// child returns what the locks say of the entry name.
func (s lockState) child(name string) lockState {
	if s.lock != nil && s.lock.Holder != nil {
		s.path = s.path.Child(name)
	}
	if s.node == nil {
		return s
	}
	s.node = s.node.children[vpath.PlainName(name)]
	if s.lock == nil && s.node != nil {
		return s.node.above()
	}
	return s
}

// covers reports whether the path is locked: its holder may write it, or make an entry of its own
// there.
func (s lockState) covers() bool {
	if s.lock == nil || s.lock.Holder == nil {
		return s.lock != nil
	}
	d := s.lock.Holder.Decide(s.path)
	return d.Permission == Write || d.Own
}

// coversChildren reports whether nothing can be written in the directory because of a lock. It may
// err on the side of no.
func (s lockState) coversChildren() bool {
	if s.lock == nil || s.lock.Holder == nil {
		return s.lock != nil
	}
	all, _ := s.lock.Holder.WritableBelow(s.path)
	return all
}

// coversMkdir reports whether a lock is in the way of a directory at the path.
func (s lockState) coversMkdir() bool {
	return s.covers() || s.lock != nil && s.lock.Holder.MayMkdir(s.path)
}

// lockOf returns what the locks say of a path.
func (p *Policy) lockOf(path vpath.Path) lockState {
	s := p.lockStart()
	if s.node == nil {
		return s
	}
	for name := range path.Elements() {
		s = s.child(name)
	}
	return s
}

// narrow applies the locks to what the rules permit.
func (s lockState) narrow(d Decision) Decision {
	if d.Permission != Write && !d.Own || !s.covers() {
		return d
	}
	if d.Permission == Write {
		d.Permission, d.Rule, d.Reason, d.Locked = Read, NoRule, s.lock.Reason, true
	}
	d.Own = false
	return d
}

// below returns the reason of a lock at the path or below it, "" if there is none.
func (s lockState) below() string {
	switch {
	case s.lock != nil:
		return s.lock.Reason
	case s.node == nil:
		return ""
	}
	for _, c := range s.node.children {
		if reason := c.above().below(); reason != "" {
			return reason
		}
	}
	return ""
}
