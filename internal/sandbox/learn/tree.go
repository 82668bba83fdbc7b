package learn

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/uses"
)

// node is a path that was used, or a directory above one.
type node struct {
	path   vpath.Path
	use    uses.Use
	need   policy.Permission // None: nothing that the paths below do not bring with them
	dir    bool
	born   bool // a directory that the command made: nothing in it is from the source
	secret bool
	asked  policy.Permission // need, before that was considered
	// unsayable says that a rule for the path would permit others, too.
	unsayable bool
	children  map[string]*node
	sorted    []*node
}

func (n *node) child(name string, dir bool) *node {
	c := n.children[name]
	if c == nil {
		if n.children == nil {
			n.children = map[string]*node{}
		}
		c = &node{path: n.path.Child(name), dir: dir}
		n.children[name] = c
	}
	return c
}

// kids returns the children, by name.
func (n *node) kids() []*node {
	if n.sorted == nil {
		for _, c := range n.children {
			n.sorted = append(n.sorted, c)
		}
		slices.SortFunc(n.sorted, func(a, b *node) int { return strings.Compare(string(a.path), string(b.path)) })
	}
	return n.sorted
}

// addUses builds the tree of the uses.
func (l *learner) addUses() {
	all := slices.Clone(l.in.Uses)
	for _, p := range l.in.Scratch {
		all = append(all, uses.Use{Path: p, Kind: uses.Tree | uses.Created, Dir: true})
	}
	for _, u := range all {
		if u.Path.IsOwn() {
			if own := u.Path.OwnRoot().Plain(); !slices.Contains(l.own, own) && len(l.own) < maxOwn {
				l.own = append(l.own, own)
			}
			continue
		}
		l.out.Paths++
		if !u.Path.IsRoot() {
			l.add(u)
		}
	}
	l.settle(l.root, false)
}

// maxOwn is how many own entries are looked at.
const maxOwn = 100

func (l *learner) add(u uses.Use) {
	need := l.needOf(&u)
	if need == policy.None || l.isGranted(&u, need) {
		return
	}
	secret := l.isSecret(u.Path)
	if secret && !utf8.ValidString(string(u.Path)) {
		l.out.Notes = append(l.out.Notes, cannotSay+u.Path.String()) // ? would permit other secrets
		return
	}
	n := l.root
	for name := range u.Path.Elements() {
		n = n.child(name, true)
	}
	u.Kind |= n.use.Kind
	n.use, n.need, n.dir = u, max(n.need, need), u.Dir || len(n.children) > 0
	n.secret = secret
}

// needOf is the permission that the use needs: what the policy permitted under which it was
// recorded, at most.
func (l *learner) needOf(u *uses.Use) policy.Permission {
	need := policy.View
	switch {
	case u.Kind&uses.Changes != 0:
		need = policy.Write
	case u.Kind&(uses.Read|uses.Executed) != 0:
		need = policy.Read
	}
	d := l.base.Decide(u.Path)
	return min(need, d.Permission)
}

// isGranted reports whether the policy of the file to be merged into permits the use.
func (l *learner) isGranted(u *uses.Use, need policy.Permission) bool {
	return l.granted != nil && permits(l.granted, u, need)
}

// permits reports whether a policy permits a use that needs the permission need.
func permits(p *policy.Policy, u *uses.Use, need policy.Permission) bool {
	d := p.Decide(u.Path)
	got := d.Permission
	if u.Dir && need <= policy.View {
		got = d.ForDir()
	}
	if u.Kind&uses.Tree != 0 && got == policy.Write {
		got = p.Decide(u.Path.Child(anyName)).Permission
	}
	if got < need && isMkdir(u) {
		return p.MayMkdir(u.Path)
	}
	return got >= need
}

// anyName is a name that no rule is likely to spell out.
const anyName = "\x01"

// isMkdir reports whether the use only made the directory.
func isMkdir(u *uses.Use) bool {
	return u.Dir && u.Kind&uses.Changes == uses.Created
}

// settle drops the needs of directories that the paths below them bring with them, and finds the
// directories that the command made. It returns the highest need at and below n.
func (l *learner) settle(n *node, born bool) policy.Permission {
	n.born = born || n.dir && n.use.Kind&uses.Created != 0 && l.list(n.path) == nil
	below := policy.None
	for _, c := range n.kids() {
		below = max(below, l.settle(c, n.born))
	}
	n.asked = n.need
	if n.dir && (n.need == policy.View && below > policy.None || isMkdir(&n.use) && below == policy.Write) {
		n.need = policy.None
	}
	if n.asked > policy.None {
		l.asked = append(l.asked, n)
	}
	return max(below, n.need)
}

// maxListed bounds the names of the source that are looked at.
const maxListed = 1 << 19

// list returns the entries of a directory of the source, as far as the command could see them.
func (l *learner) list(dir vpath.Path) []Entry {
	if l.in.List == nil || l.listed >= maxListed {
		return nil
	}
	entries, known := l.exists[dir]
	if !known {
		for _, e := range l.in.List(dir) {
			d := l.base.Decide(dir.Child(e.Name))
			if d.Permission != policy.None || e.Dir && d.Traversable {
				entries = append(entries, e)
			}
		}
		l.exists[dir] = entries
		l.listed += len(entries)
	}
	return entries
}

// unused counts the files of the source at and below n, that match and were not used.
func (l *learner) unused(dir vpath.Path, n *node, deep bool, match func(name string) bool) int {
	if n != nil && n.born {
		return 0
	}
	count := 0
	for _, e := range l.list(dir) {
		var c *node
		if n != nil {
			c = n.children[e.Name]
		}
		p := dir.Child(e.Name)
		switch {
		case e.Dir:
			if deep && l.nothing.Decide(p).Rule == policy.NoRule {
				count += l.unused(p, c, true, match)
			}
		case match(e.Name) && (c == nil || c.need == policy.None) && !l.isSecret(p):
			count++
		}
	}
	return count
}

func anyFile(string) bool { return true }
