package transactions_test

import (
	"slices"

	"github.com/agentfense/agentfense/internal/view/policy"
)

// outcome is what an apply does with a change.
type outcome rune

const (
	applies   outcome = 'a'
	isPresent outcome = 'p' // the source has it already
	isKept    outcome = 'k' // the sandbox did not delete it itself
	stays     outcome = 's' // the source wins, and the sandbox keeps its version
	conflicts outcome = 'c'
	refused   outcome = 'r' // the policy does not let the sandbox write there
	unchanged outcome = '-'
)

// change is a path that a delta has or hides, and what an apply does with it.
type change struct {
	status rune // 'A', 'M', 'D', 'T', or '-' for none
	made   bool // a directory that the sandbox made
	outcome
}

// changes are those of a delta, without their outcomes.
func (d *delta) changes(src tree) map[string]change {
	list := map[string]change{}
	for p, e := range d.own {
		base, recorded := d.base[p]
		switch {
		case e.gone:
		case !recorded:
			list[p] = change{status: 'A', made: e.isDir()}
		case base.kind != e.kind:
			list[p] = change{status: 'T', made: e.isDir()}
		case !isSame(base, e.node), !e.isDir() && !base.byHash && !d.isFresh(src, p):
			list[p] = change{status: 'M'}
		case !e.isDir():
			list[p] = change{status: '-'}
		}
	}
	for p := range src {
		if _, shown := d.at(src, p); !shown {
			list[p] = change{status: 'D'}
		}
	}
	return list
}

// isSame reports whether two entries are the same in a source.
func isSame(a, b node) bool {
	return a.kind == b.kind && a.text == b.text && (a.mode == b.mode || a.kind == 'l')
}

// isFresh reports whether the source still has what the sandbox saw.
func (d *delta) isFresh(src tree, p string) bool {
	base, recorded := d.base[p]
	now, there := src[p]
	switch {
	case !recorded || !there:
		return !recorded && !there
	case base.isDir() && now.isDir():
		return base.mode == now.mode
	}
	lostNames := base.isFile() && now.names < base.names && now.inode == base.inode && now.mode == base.mode
	return base.identity == now.identity || lostNames || base.byHash && isSame(base, now)
}

// isPresent reports whether the source has what the change would give it.
func (d *delta) isPresent(src tree, p string, c change) bool {
	now, there := src[p]
	if c.status == 'D' || !there {
		return c.status == 'D' && !there
	}
	_, recorded := d.base[p]
	return isSame(now, d.own[p].node) || now.isDir() && d.own[p].isDir() && !recorded
}

// selectChanges leaves the changes at and below paths (none: all), with the directories that the
// sandbox made above them.
func selectChanges(all map[string]change, paths []string) map[string]change {
	if len(paths) == 0 {
		return all
	}
	wanted := map[string]change{}
	for p, c := range all {
		if slices.ContainsFunc(paths, func(at string) bool { return p == at || isBelow(p, at) }) {
			wanted[p] = c
		}
	}
	for _, p := range childrenFirst(wanted) {
		for _, a := range ancestors(p) {
			if c := all[a]; c.made {
				wanted[a] = c
			}
		}
	}
	return wanted
}

// plan returns the selected changes with what an apply does with them.
func (d *delta) plan(src tree, paths []string, r resolution) map[string]change {
	steps := selectChanges(d.changes(src), paths)
	for _, p := range parentsFirst(steps) {
		c := steps[p]
		c.outcome = d.decide(src, p, c, steps, r)
		steps[p] = c
	}
	for _, p := range childrenFirst(steps) {
		if c := steps[p]; c.status != 'D' || c.outcome != isKept {
			continue
		}
		for _, a := range ancestors(p) {
			c, is := steps[a]
			switch {
			case !is || c.outcome != applies:
			case c.status == 'D':
				c.outcome = isKept
			case c.status == 'T' && !d.own[a].isDir():
				c.outcome = conflicts
			}
			if is {
				steps[a] = c
			}
		}
	}
	return steps
}

func (d *delta) decide(src tree, p string, c change, steps map[string]change, r resolution) outcome {
	base, recorded := d.base[p]
	_, there := src[p]
	isCleared := c.status == 'T' && base.isDir() && !there // nothing can be lost
	switch {
	case c.status == '-':
		return unchanged
	case c.status == 'D' && (!recorded || d.isHidden(p) && d.isTaken(p)):
		return isKept
	case d.permission(p) < policy.Write:
		return refused
	case !d.isFresh(src, p) && !isCleared && d.isPresent(src, p, c):
		return isPresent
	case !d.isFresh(src, p) && !isCleared:
		if how := d.decideBoth(src, p, c, r); how != applies {
			return how
		}
	case c.status == 'D':
		return applies
	}
	if parent(p) == "" {
		return applies
	}
	if above, is := steps[parent(p)]; is {
		if above.outcome == conflicts || above.outcome == refused {
			return conflicts
		}
		return applies
	}
	if src.isDir(parent(p)) {
		return applies
	}
	return conflicts
}

// isTaken reports whether the sandbox removed, or replaced, a directory above p.
func (d *delta) isTaken(p string) bool {
	return slices.ContainsFunc(ancestors(p), func(a string) bool {
		e, has := d.own[a]
		base, recorded := d.base[a]
		return has && (e.gone || recorded && base.kind != e.kind)
	})
}

// decideBoth decides about a path that the source and the sandbox have changed: a text is merged.
func (d *delta) decideBoth(src tree, p string, c change, r resolution) outcome {
	base, ours := d.base[p], src[p]
	if c.status != 'M' || !base.isFile() || !ours.isFile() {
		return conflicts
	}
	merged, how := r.merge(base, ours, d.own[p].node)
	switch {
	case how == impossible:
		return conflicts
	case !isSame(merged, ours):
		return applies
	case how == clean:
		return isPresent
	}
	return stays
}

// inConflict returns the paths that stop an apply.
func inConflict(steps map[string]change) []string {
	var list []string
	for _, p := range parentsFirst(steps) {
		if how := steps[p].outcome; how == conflicts || how == refused {
			list = append(list, p)
		}
	}
	return list
}

// move is what a transaction does with a path of the source.
type move struct{ before, after *node }

// transaction is an entry of the source's history.
type transaction struct {
	id     string
	box    string // the name of the sandbox, which no other one gets
	undoes bool
	done   map[string]move
	by     string // the transaction that reverses it
}

func (t tree) has(p string) *node {
	if n, there := t[p]; there {
		return &n
	}
	return nil
}

func (t tree) set(p string, n *node) {
	if n == nil {
		delete(t, p)
	} else {
		t[p] = *n
	}
}

// applyTo does what the plan says. It returns what it did in the source.
func (d *delta) applyTo(src tree, steps map[string]change, all bool, r resolution) map[string]move {
	done := map[string]move{}
	var dropped []string
	for p, c := range steps {
		if c.outcome != stays {
			dropped = append(dropped, p)
		}
		if c.outcome != applies {
			continue
		}
		m := move{before: src.has(p)}
		if c.status != 'D' {
			n := d.own[p].node
			n.group = 0 // each name becomes a file
			if !d.isFresh(src, p) && m.before != nil {
				n, _ = r.merge(d.base[p], *m.before, n)
			}
			m.after = &n
		}
		done[p] = m
	}
	for p, m := range done {
		src.set(p, m.after)
	}
	if all && len(dropped) == len(steps) {
		d.reset()
	} else {
		d.drop(src, dropped)
	}
	return done
}

// refused returns the paths that prevent the reversal of a transaction.
func (t *transaction) refused(src tree) []string {
	var list []string
	for _, p := range parentsFirst(t.done) {
		m, now := t.done[p], src.has(p)
		switch {
		case !src.isDir(parent(p)):
			// Below what the reversal makes a directory again.
			above, is := t.done[parent(p)]
			if m.after != nil || !is || above.before == nil || !above.before.isDir() {
				list = append(list, p)
			}
		case (now == nil) != (m.after == nil), now != nil && !isSame(*now, *m.after):
			list = append(list, p)
		case now != nil && now.isDir() && (m.before == nil || !m.before.isDir()) && t.leaves(src, p):
			list = append(list, p)
		}
	}
	return list
}

// leaves reports whether the directory p contains what the reversal does not remove.
func (t *transaction) leaves(src tree, p string) bool {
	for q := range src {
		if m, is := t.done[q]; isBelow(q, p) && (!is || m.before != nil) {
			return true
		}
	}
	return false
}

// reverse does in the source what takes t back, and returns it.
func (t *transaction) reverse(src tree) map[string]move {
	done := map[string]move{}
	for p, m := range t.done {
		done[p] = move{before: src.has(p), after: m.before}
		src.set(p, m.before)
	}
	return done
}

// giveBack gives the delta what an undo, which did these moves in the source, has taken from there:
// nothing of it if the undo was killed while it did that, when the delta fits the source already.
func (d *delta) giveBack(src tree, done map[string]move, killed bool) {
	var gone, made, rebased, removed []string
	for p, m := range done {
		_, recorded := d.base[p]
		_, shown := d.at(src, p)
		switch {
		case m.after == nil && !shown && recorded: // the sandbox removed it later
			removed = append(removed, p)
		case d.has(src, p, m):
			if d.wasMadeOf(p, m.before) {
				rebased = append(rebased, p)
			}
		case d.permission(p) < policy.Write: // it is no longer the sandbox's to change
		default:
			if m.before == nil || m.after != nil && m.after.kind != m.before.kind {
				gone = append(gone, p)
			}
			if m.before != nil {
				made = append(made, p)
			}
		}
	}
	d.rebase(src, rebased)
	if len(removed) > 0 {
		d.drop(src, removed)
	}
	if len(gone)+len(made) == 0 {
		return
	}
	d.freeze()
	if killed {
		return
	}
	in := func(list []string) map[string]bool {
		m := map[string]bool{}
		for _, p := range list {
			m[p] = true
		}
		return m
	}
	for _, p := range childrenFirst(in(gone)) {
		if n, shown := d.at(src, p); shown && (!n.isDir() || d.view(src).isEmpty(p)) && n.isDir() == done[p].after.isDir() {
			d.remove(src, p)
		}
	}
	for _, p := range parentsFirst(in(made)) {
		d.make(src, p, *done[p].before)
	}
}

// make makes n at p, unless something else is in its way.
func (d *delta) make(src tree, p string, n node) {
	view := d.view(src)
	now, shown := view[p]
	switch {
	case !view.isDir(parent(p)), shown && now.kind != n.kind:
	case n.isDir() && shown, n.isFile() && shown && now.text == n.text:
		d.chmod(src, p, n)
	default:
		d.put(src, p, n)
	}
}

// has reports whether the delta has, or hides, its own entry at p.
func (d *delta) has(src tree, p string, m move) bool {
	n, shown := d.at(src, p)
	if !shown {
		return m.after != nil
	}
	_, own := d.own[p]
	wereDirs := m.before != nil && m.after != nil && m.before.isDir() && m.after.isDir()
	return own && !(n.isDir() && wereDirs)
}

// wasMadeOf reports whether the delta's entry was made of what a reversal takes out of the source.
func (d *delta) wasMadeOf(p string, n *node) bool {
	base, recorded := d.base[p]
	switch {
	case n == nil || !recorded:
		return n == nil && !recorded
	case n.isDir():
		return base.isDir() && base.mode == n.mode
	}
	return base.inode == n.inode
}

// rebase makes what the source has now the base of the delta's entries at the paths.
func (d *delta) rebase(src tree, paths []string) {
	if len(paths) == 0 {
		return
	}
	for _, p := range paths {
		if n, there := src[p]; there {
			if _, own := d.own[p]; own {
				d.base[p] = withContent(n)
			} else if _, shown := d.at(src, p); !shown {
				d.base[p] = withContent(n)
			}
		} else {
			delete(d.base, p)
		}
	}
	d.squash(src)
}

// takeOut drops from the delta what a redo has put into the source again.
func (d *delta) takeOut(src tree, done map[string]move) {
	var present, later []string
	for p, m := range done {
		_, recorded := d.base[p]
		if _, shown := d.at(src, p); m.after == nil && !shown && recorded {
			present = append(present, p)
		}
	}
	for p, c := range d.changes(src) {
		if _, is := done[p]; !is {
			continue
		}
		if d.isPresent(src, p, c) {
			present = append(present, p)
		} else if d.wasMadeOf(p, done[p].before) {
			later = append(later, p)
		}
	}
	d.rebase(src, later)
	if len(present) > 0 {
		d.drop(src, present)
	}
}
