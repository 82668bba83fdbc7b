package transactions_test

import (
	"maps"
	"slices"

	"github.com/agentfense/agentfense/internal/view/policy"
)

// entry is what a delta has at a path.
type entry struct {
	node
	gone   bool // a whiteout
	opaque bool // a directory that hides what the source has below
}

// delta is the model of a delta: it lies on the source, as OCI layers do.
type delta struct {
	own    map[string]entry
	base   tree                         // what the source had where the delta has, or hides, its entry
	frozen map[string]entry             // own as of the last snapshot: a removal leaves a whiteout over it
	lock   *lock                        // of another sandbox, while it has one
	narrow map[string]policy.Permission // what the sandbox may do at and below these paths; else it may write
}

func newDelta() *delta {
	return &delta{own: map[string]entry{}, base: tree{}, frozen: map[string]entry{}}
}

func (d *delta) clone() *delta {
	return &delta{own: maps.Clone(d.own), base: maps.Clone(d.base), frozen: maps.Clone(d.frozen), narrow: d.narrow}
}

// freeze is what a snapshot does.
func (d *delta) freeze() { d.frozen = maps.Clone(d.own) }

// shows reports whether the source's entries show in the directory p.
func (d *delta) shows(src tree, p string) bool {
	if p == "" {
		return true
	}
	e, has := d.own[p]
	return d.shows(src, parent(p)) && src[p].isDir() && (!has || e.isDir() && !e.gone && !e.opaque)
}

// at returns what the view shows at p.
func (d *delta) at(src tree, p string) (node, bool) {
	if e, has := d.own[p]; has {
		return e.node, !e.gone
	}
	n, has := src[p]
	return n, has && d.shows(src, parent(p))
}

func (d *delta) view(src tree) tree {
	v := tree{}
	for p := range d.own {
		if n, ok := d.at(src, p); ok {
			v[p] = n
		}
	}
	for p := range src {
		if n, ok := d.at(src, p); ok {
			v[p] = n
		}
	}
	return v
}

// up copies the directories above p up.
func (d *delta) up(src tree, p string) {
	for _, a := range ancestors(p) {
		d.copyUp(src, a)
	}
}

func (d *delta) copyUp(src tree, p string) {
	if _, has := d.own[p]; !has {
		d.up(src, p)
		d.own[p], d.base[p] = entry{node: src[p]}, withContent(src[p])
	}
}

// link gives the file p the name q, at which the view has nothing. group is a new one.
func (d *delta) link(src tree, p, q string, group int) {
	d.copyUp(src, p)
	if e := d.own[p]; e.group == 0 {
		e.group = group
		d.own[p] = e
	}
	d.put(src, q, d.own[p].node)
}

// names are those of the file p in the delta.
func (d *delta) names(p string) []string {
	list := []string{p}
	for q, e := range d.own {
		if q != p && !e.gone && e.group != 0 && e.group == d.own[p].group {
			list = append(list, q)
		}
	}
	return list
}

// withContent is the base of an entry of which the content was recorded.
func withContent(n node) node {
	n.byHash = true
	return n
}

// put places n at p, where the view has nothing, or an entry that is no directory.
func (d *delta) put(src tree, p string, n node) {
	d.up(src, p)
	was, had := d.own[p]
	if _, shown := d.at(src, p); shown && !had {
		d.base[p] = src[p]
		if src[p].isFile() {
			d.base[p] = withContent(src[p])
		}
	}
	if base := d.base[p]; had && was.gone && base.isFile() && base.identity == src[p].identity {
		d.base[p] = withContent(base)
	}
	d.own[p] = entry{node: n, opaque: n.isDir() && had && was.gone}
}

// remove removes p, which is no directory or has nothing below it.
func (d *delta) remove(src tree, p string) {
	if _, has := d.own[p]; !has {
		d.up(src, p)
		d.base[p] = src[p]
	}
	maps.DeleteFunc(d.own, func(q string, _ entry) bool { return q == p || isBelow(q, p) })
	below := &delta{own: d.frozen}
	if _, shows := below.at(src, p); (shows || d.frozen[p].gone) && d.hasWay(p) {
		d.own[p] = entry{gone: true}
	}
}

// hasWay reports whether what lies below the delta can show at p: no directory above p is opaque.
func (d *delta) hasWay(p string) bool {
	for _, a := range ancestors(p) {
		if d.own[a].opaque && !d.frozen[a].opaque {
			return false
		}
	}
	return true
}

// rename moves p to q, where nothing is, or an entry that is no directory if p is none.
func (d *delta) rename(src tree, p, q string) {
	if slices.Contains(d.names(p), q) {
		return // rename(2) leaves two names of one file
	}
	moved := tree{}
	for at, n := range d.view(src) {
		if (at == p || isBelow(at, p)) && !d.isHidden(at) {
			moved[at] = n
		}
	}
	for _, at := range parentsFirst(moved) {
		d.copyUp(src, at)
	}
	for _, at := range parentsFirst(moved) {
		to := q + at[len(p):]
		if at == p {
			hidden, recorded := d.base[to]
			covers := d.own[to].gone && recorded
			d.put(src, to, moved[at])
			if covers && !moved[at].isFile() { // such an entry is never merged
				d.base[to] = hidden
			}
		} else {
			d.own[to] = entry{node: moved[at]}
		}
		if e := d.own[to]; e.isDir() {
			e.opaque = e.opaque || at == p
			d.own[to] = e
		}
	}
	d.remove(src, p)
}

// chmod changes a mode.
func (d *delta) chmod(src tree, p string, n node) {
	d.copyUp(src, p)
	for _, q := range d.names(p) {
		e := d.own[q]
		e.mode = n.mode
		d.own[q] = e
	}
}

// drop removes the changes at the paths: the view shows the source there.
func (d *delta) drop(src tree, paths []string) {
	m := map[string]bool{}
	for _, p := range paths {
		m[p] = true
	}
	gone := map[string]bool{}
	for _, p := range paths {
		if _, shown := d.at(src, p); !shown && !d.noteGone(src, p, m, gone) {
			delete(m, p)
		}
	}
	d.squash(src)
	parents := map[string]bool{}
	for _, p := range childrenFirst(m) {
		d.dropOne(src, p)
		if q := parent(p); q != "" {
			parents[q] = true
		}
	}
	for _, p := range childrenFirst(parents) {
		for ; p != "" && d.prune(src, p); p = parent(p) {
			delete(d.base, p)
		}
	}
	for _, p := range childrenFirst(gone) {
		if n, shown := d.at(src, p); shown && n.isDir() && d.view(src).isEmpty(p) {
			d.remove(src, p)
		}
	}
}

// noteGone notes the directories above p that the view does not show and that stay so. It reports
// whether p can be dropped: not if a file that stays is in their place.
func (d *delta) noteGone(src tree, p string, dropped, gone map[string]bool) bool {
	for a := parent(p); a != ""; a = parent(a) {
		if n, shown := d.at(src, a); shown {
			return n.isDir() || dropped[a]
		}
		if !dropped[a] {
			gone[a] = true
		}
	}
	return true
}

// squash brings the frozen layers into the delta.
func (d *delta) squash(src tree) {
	if len(d.frozen) == 0 {
		return
	}
	d.frozen = map[string]entry{}
	maps.DeleteFunc(d.own, func(p string, e entry) bool {
		_, recorded := d.base[p]
		_, there := src[p]
		return e.gone && !recorded && !there
	})
}

func (d *delta) dropOne(src tree, p string) {
	delete(d.base, p)
	for _, a := range ancestors(p) {
		if !d.expose(src, a) {
			break
		}
	}
	d.expose(src, p)
	e, has := d.own[p]
	switch {
	case !has:
	case e.gone || !e.isDir() || d.hidesNothing(src, p):
		delete(d.own, p)
	case src[p].isDir():
		e.mode = src[p].mode
		d.own[p], d.base[p] = e, src[p]
	}
}

// expose makes the directory p, if the delta has or hides it, one through which the source's shows:
// what the sandbox removed in it stays removed. It reports whether the delta has it.
func (d *delta) expose(src tree, p string) bool {
	e, has := d.own[p]
	if !has || !e.gone && !e.isDir() || e.gone && !src[p].isDir() {
		return false
	}
	if e.gone {
		e = entry{node: src[p], opaque: true}
	}
	if e.opaque && src[p].isDir() {
		for q := range src {
			if parent(q) != p {
				continue
			}
			own, has := d.own[q]
			switch _, recorded := d.base[q]; {
			case has && own.isDir() && !own.gone:
				own.opaque = true
				d.own[q] = own
			case !has && recorded:
				d.own[q] = entry{gone: true}
			}
		}
	}
	e.opaque = false
	d.own[p] = e
	return true
}

// hidesNothing reports whether the delta's directory p has no entries and hides none.
func (d *delta) hidesNothing(src tree, p string) bool {
	for q, e := range d.own {
		if _, there := src[q]; parent(q) == p && (!e.gone || there && src[p].isDir()) {
			return false
		}
	}
	return true
}

// prune removes the directory p if the delta has it only because it contained changes.
func (d *delta) prune(src tree, p string) bool {
	base, recorded := d.base[p]
	if !recorded || !base.isDir() {
		return false
	}
	e, has := d.own[p]
	if !has {
		return !slices.ContainsFunc(ancestors(p), func(a string) bool { _, has := d.own[a]; return has }) && src[p].isDir()
	}
	if e.gone || !e.isDir() || e.opaque || e.mode != base.mode || !d.hidesNothing(src, p) {
		return false
	}
	maps.DeleteFunc(d.own, func(q string, _ entry) bool { return q == p || isBelow(q, p) })
	return true
}

// reset removes all changes.
func (d *delta) reset() {
	narrow := d.narrow
	*d = *newDelta()
	d.narrow = narrow
}

// write changes the content of a file.
func (d *delta) write(src tree, p, text string) {
	d.copyUp(src, p)
	for _, q := range d.names(p) {
		e := d.own[q]
		e.text = text
		d.own[q] = e
	}
}
