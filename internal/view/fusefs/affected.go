package fusefs

import (
	"slices"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// affected returns the nodes on which the two rules may decide differently: few, if only locks
// differ. The caller holds fs.moves, so that none of them moves before the rules are swapped.
func (fs *FS) affected(old, now *rules) []*node {
	changed, ok := policy.ChangedLocks(old.Policy, now.Policy)
	if !ok || old.strict == nil || now.strict == nil {
		return fs.nodes.all()
	}
	t := &fs.nodes
	t.mu.RLock()
	defer t.mu.RUnlock()
	var nodes []*node
	for _, p := range changed.Paths() {
		nodes = t.appendBelowLocked(nodes, p)
	}
	for n, x := range t.extras {
		deciding := append(t.decidingLocked(n, now), old.strictest(x.file)...)
		if slices.ContainsFunc(deciding, changed.Covers) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// appendBelowLocked appends the nodes that have their only name at p or below it. A program sees an
// own entry at the path that it has without the mark, so both spellings of a name lead on.
func (t *table) appendBelowLocked(to []*node, p vpath.Path) []*node {
	at := []*node{t.rootLocked()}
	for name := range p.Elements() {
		var next []*node
		for _, n := range at {
			for _, spelling := range []string{name, vpath.OwnName(name)} {
				if c := t.childLocked(n, spelling); c != nil {
					next = append(next, c)
				}
			}
		}
		at = next
	}
	for len(at) > 0 {
		last := len(at) - 1
		n := at[last]
		at = at[:last]
		if !n.is(flagExtra) {
			to = append(to, n)
		}
		if n.isDir() {
			at = n.dir.appendChildrenLocked(at)
		}
	}
	return to
}

// appendChildrenLocked appends the nodes that have their first name in the directory.
func (d *dir) appendChildrenLocked(to []*node) []*node {
	for _, n := range d.buckets {
		for ; n != nil; n = n.next {
			to = append(to, n)
		}
	}
	return to
}

func (t *table) rootLocked() *node { return t.slots[fuse.FUSE_ROOT_ID] }
