package learn

import (
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/uses"
)

// The kinds of rules, the narrowest first.
type shape int

const (
	exact      shape = iota // one path
	random                  // names with random parts: /package.json.*
	extension               // files of one extension in a directory: /src/*.js, or of any
	extensions              // and in those below: /src/**/*.js
	tree                    // a directory and all below: /src/**
	trees                   // directories of one name: /src/**/__pycache__/**
)

// item is a rule that is being made.
type item struct {
	shape      shape
	dir        vpath.Path // the directory; of exact the path
	text       string     // the extension, the name of trees, the glob of random names
	permission policy.Permission
	uses       []*node
	unused     int // files of the source that it permits, too
}

// agree is how many siblings make a generalisation.
const agree = 3

// agreeInRoot is how many make one in the root, where files differ more.
const agreeInRoot = 5

// without is the limit that never forces a generalisation.
const without = 1 << 30

// limits are tried until the rules are few enough. A directory with more rules than the limit
// becomes one rule.
var limits = []int{without, 12, 8, 6, 5, 4, agree - 1}

// cover returns items that permit all needs.
func (l *learner) cover() []*item {
	var items []*item
	for _, limit := range limits {
		items = l.across(joined(l.below(l.root, limit)), limit)
		if len(items) <= MaxRules {
			break
		}
	}
	return items
}

// joined makes one of the items with the same random names.
func joined(items []*item) []*item {
	known := map[string]*item{}
	return slices.DeleteFunc(items, func(i *item) bool {
		if i.shape != random {
			return false
		}
		key := string(i.dir.Child(i.text))
		if first := known[key]; first != nil {
			first.uses = append(first.uses, i.uses...)
			return true
		}
		known[key] = i
		return false
	})
}

// below returns the items of all below the directory n, and of n itself.
func (l *learner) below(n *node, limit int) []*item {
	if (n.use.Kind&uses.Tree != 0 || isUnit(n)) && !n.secret {
		items := []*item{{shape: tree, dir: n.path, permission: policy.Write, uses: needs(n)}}
		for _, s := range secretsBelow(n) {
			items = append(items, single(s))
		}
		return items
	}
	var items []*item
	if n.need > policy.None {
		items = append(items, single(n))
	}
	var files []*node
	for _, c := range n.kids() {
		switch glob, is := randomGlob(c); {
		case c.secret || !c.dir && len(c.children) > 0:
			items = append(items, l.below(c, limit)...)
		case !c.dir:
			files = append(files, c)
		case is && c.born && l.matchesNothing(n.path, glob):
			items = append(items, &item{shape: random, dir: n.path, text: glob + "/**", permission: policy.Write, uses: needs(c)})
			for _, s := range secretsBelow(c) {
				items = append(items, single(s))
			}
		default:
			items = append(items, l.below(c, limit)...)
		}
	}
	return l.merge(n, append(items, l.group(n, files, limit)...), limit)
}

// isUnit reports whether n is a directory of git in which something was made: the next commit has
// other names there.
func isUnit(n *node) bool {
	parent, name := n.path.Dir(), n.path.Base()
	if parent.Base() != ".git" || !slices.Contains([]string{"objects", "refs", "logs"}, name) {
		return false
	}
	return slices.ContainsFunc(needs(n), func(n *node) bool { return n.use.Kind&uses.Created != 0 })
}

func single(n *node) *item {
	return &item{shape: exact, dir: n.path, permission: n.need, uses: []*node{n}}
}

// needs returns n and all below that have a need and are no secrets.
func needs(n *node) []*node {
	var all []*node
	if n.need > policy.None && !n.secret {
		all = append(all, n)
	}
	for _, c := range n.kids() {
		all = append(all, needs(c)...)
	}
	return all
}

// secretsBelow returns all below n that have a need and are secrets.
func secretsBelow(n *node) []*node {
	var all []*node
	for _, c := range n.kids() {
		if c.secret && c.need > policy.None {
			all = append(all, c)
		}
		all = append(all, secretsBelow(c)...)
	}
	return all
}

// group returns the items of files in a directory: one for each extension that enough of them
// agree on.
func (l *learner) group(n *node, files []*node, limit int) []*item {
	var items []*item
	byText := map[string][]*node{}
	var texts []string
	for _, f := range files {
		text, is := randomGlob(f)
		if is && l.matchesNothing(n.path, text) {
			text = "\x00" + text
		} else {
			text = extensionOf(f.path.Base())
		}
		if byText[text] == nil {
			texts = append(texts, text)
		}
		byText[text] = append(byText[text], f)
	}
	for _, text := range texts {
		all := byText[text]
		if glob, is := strings.CutPrefix(text, "\x00"); is {
			items = append(items, &item{shape: random, dir: n.path, text: glob, permission: policy.Write, uses: all})
			continue
		}
		items = append(items, l.ofExtension(n, text, all, limit)...)
	}
	return items
}

func (l *learner) ofExtension(n *node, ext string, all []*node, limit int) []*item {
	permission, agreeing, others := majority(all)
	least := agree
	if n == l.root {
		least = agreeInRoot
	}
	var items []*item
	if (ext != "" || limit < without) && len(agreeing) >= least {
		unused := l.unused(n.path, n, false, func(name string) bool { return ext == "" || extensionOf(name) == ext })
		if unused == 0 && ext != "" || len(agreeing) > limit {
			items = append(items, &item{shape: extension, dir: n.path, text: ext, permission: permission, uses: agreeing, unused: unused})
			agreeing = nil
		}
	}
	for _, f := range append(agreeing, others...) {
		items = append(items, single(f))
	}
	return items
}

// majority returns the permission that most need, and which nodes agree on it: a path that was
// only looked up agrees with others that were read.
func majority(all []*node) (permission policy.Permission, agreeing, others []*node) {
	var counts [policy.Write + 1]int
	for _, n := range all {
		counts[n.need]++
	}
	permission = policy.View
	if counts[policy.Read] > 0 && counts[policy.Read]*2 >= counts[policy.View] {
		permission = policy.Read
	}
	if counts[policy.Write] > counts[policy.Read]+counts[policy.View] {
		permission = policy.Write
	}
	for _, n := range all {
		if n.need == permission || permission == policy.Read && n.need == policy.View {
			agreeing = append(agreeing, n)
		} else {
			others = append(others, n)
		}
	}
	return permission, agreeing, others
}

// merge replaces the items below a directory by one for the whole directory, if enough agree
// and nothing else is there, or if there are more than the limit.
func (l *learner) merge(n *node, items []*item, limit int) []*item {
	if n == l.root || n.secret {
		return items
	}
	var all []*node
	merging := 0
	for _, i := range items {
		if !i.ofSecret() {
			all = append(all, i.uses...)
			merging++
		}
	}
	if n.born {
		return l.mergeBorn(n, items, all)
	}
	permission, agreeing, others := majority(all)
	if len(agreeing) < agree || merging < 2 {
		return items
	}
	unused := l.unused(n.path, n, true, anyFile)
	whole := len(others) == 0 && unused == 0
	if whole || countItems(items, permission) > limit {
		items = mergedInto(&item{shape: tree, dir: n.path, permission: permission, unused: unused}, items)
	}
	if permission < policy.Write && countItems(items, policy.Write) > limit {
		items = mergedInto(&item{shape: tree, dir: n.path, permission: policy.Write, unused: unused}, items)
	}
	return items
}

// countItems counts the items with the permission that are for no secret.
func countItems(items []*item, permission policy.Permission) (n int) {
	for _, i := range items {
		if i.permission == permission && !i.ofSecret() {
			n++
		}
	}
	return n
}

// mergedInto moves the uses of the items that need no more than one into that.
func mergedInto(one *item, items []*item) []*item {
	kept := slices.DeleteFunc(items, func(i *item) bool {
		if i.permission > one.permission || i.ofSecret() {
			return false
		}
		one.uses = append(one.uses, i.uses...)
		return true
	})
	return append([]*item{one}, kept...)
}

// mergeBorn replaces the items below a directory that the command made.
func (l *learner) mergeBorn(n *node, items []*item, all []*node) []*item {
	randoms := slices.ContainsFunc(items, func(i *item) bool { return i.shape == random })
	if len(all) < agree && !randoms {
		return items
	}
	one := &item{shape: tree, dir: n.path, permission: policy.Write, uses: all}
	kept := slices.DeleteFunc(items, func(i *item) bool { return !i.ofSecret() })
	return append([]*item{one}, kept...)
}

// ofSecret reports whether the item is for a single secret.
func (i *item) ofSecret() bool { return i.shape == exact && i.uses[0].secret }

// across merges items of several directories: trees of one name, and files of one extension.
func (l *learner) across(items []*item, limit int) []*item {
	items = merged(items, tree, trees, func(i *item) string { return i.dir.Base() }, func(*item, vpath.Path) bool { return true })
	return merged(items, extension, extensions, func(i *item) string { return i.text }, func(one *item, dir vpath.Path) bool {
		one.unused = l.unused(dir, l.at(dir), true, func(name string) bool { return extensionOf(name) == one.text })
		return one.unused == 0 || len(items) > MaxRules && limit < without
	})
}

// at returns the node of a directory.
func (l *learner) at(p vpath.Path) *node {
	n := l.root
	for name := range p.Elements() {
		if n = n.children[name]; n == nil {
			return nil
		}
	}
	return n
}

// merged merges the items of the shape from that have the same text and permission, where there
// are enough.
func merged(items []*item, from, to shape, text func(*item) string, may func(one *item, dir vpath.Path) bool) []*item {
	type key struct {
		text       string
		permission policy.Permission
	}
	groups := map[key][]*item{}
	for _, i := range items {
		if i.shape == from {
			k := key{text(i), i.permission}
			groups[k] = append(groups[k], i)
		}
	}
	gone := map[*item]bool{}
	var added []*item
	for k, group := range groups {
		if len(group) < agree {
			continue
		}
		dir := commonDir(group)
		one := &item{shape: to, dir: dir, text: k.text, permission: k.permission}
		for _, i := range group {
			one.uses = append(one.uses, i.uses...)
		}
		if !may(one, dir) {
			continue
		}
		for _, i := range group {
			gone[i] = true
		}
		added = append(added, one)
	}
	return append(slices.DeleteFunc(items, func(i *item) bool { return gone[i] }), added...)
}

// commonDir returns the deepest directory that contains the directories of all items, or is one.
func commonDir(items []*item) vpath.Path {
	dir := items[0].dir
	if items[0].shape == tree {
		dir = dir.Dir()
	}
	for _, i := range items[1:] {
		for !i.dir.Within(dir) || i.shape == tree && i.dir == dir {
			dir = dir.Dir()
		}
	}
	return dir
}
