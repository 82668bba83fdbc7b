package policy

import "github.com/agentfense/agentfense/internal/lib/vpath"

// Lock makes a path, and everything below it, at most Read above all rules, whether it exists or
// not: another sandbox has it locked. It never shows what the rules hide.
type Lock struct {
	Path vpath.Path
	// Reason says it for people: who has the lock.
	Reason string
}

// lockNode is a directory above a lock, or a locked path.
type lockNode struct {
	children map[string]*lockNode
	reason   string // of the lock on the path itself; "": it has none
}

// lockState is what locks say of one path.
type lockState struct {
	node   *lockNode // nil: there is no lock at the path or below it
	reason string    // of the lock at the path or above it; "": it has none
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
		if n.reason == "" {
			n.reason = l.Reason
		}
	}
	return root
}

// lockStart returns what the locks say of the workspace itself.
func (p *Policy) lockStart() lockState {
	if p.locks == nil {
		return lockState{}
	}
	return lockState{p.locks, p.locks.reason}
}

// child returns what the locks say of the entry name.
func (s lockState) child(name string) lockState {
	if s.node == nil {
		return s
	}
	s.node = s.node.children[vpath.PlainName(name)]
	if s.reason == "" && s.node != nil {
		s.reason = s.node.reason
	}
	return s
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
	if s.reason != "" && d.Permission == Write {
		d.Permission, d.Rule, d.Reason, d.Locked = Read, NoRule, s.reason, true
	}
	if s.reason != "" {
		d.Own = false
	}
	return d
}

// below returns the reason of a lock at the path or below it, "" if there is none.
func (s lockState) below() string {
	if s.reason != "" || s.node == nil {
		return s.reason
	}
	for _, c := range s.node.children {
		if reason := (lockState{c, c.reason}).below(); reason != "" {
			return reason
		}
	}
	return ""
}
