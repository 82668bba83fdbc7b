package policy

import (
	"slices"
)

// node is a place in the trie of all patterns: the elements on the way to it
// match some beginning of a path. A path is matched by walking with the set of
// all nodes reached so far; that set stays small, because patterns that begin
// alike share their nodes and only ** keeps a node in the set.
//
// While the trie grows, children are found through the builder's map; seal
// then computes what is derived.
//
// What any rule could still grant below the set of nodes at a directory (State) makes a hidden
// directory traversable. Paths are bytes and compared case-sensitively; a pattern's wildcards take
// a character where the name is valid UTF-8 and a byte where it is not.
type node struct {
	literals map[string]*node
	globs    *globIndex
	any      *node // the child for *
	stars    *node // the child for **: reached together with this node

	loops  bool // the node is a **: it takes any name and stays
	nested bool // some ** is above the node: it may be reached more than once

	end  grant // the highest-ranking rule that ends here, widening flags apart
	flag grant // the highest-ranking widening flag that ends here

	below reach // what may be granted to paths that go on from here
	next  reach // what may be granted one element on, through a literal or a glob
}

// grant is a rule that matched, with the rank it has there.
type grant struct {
	rank       rank
	rule       int32 // index in the policy's rules, or NoRule
	permission Permission
	own        bool   // of None: not strict
	transform  uint64 // of Read: Transform.strictness
}

// higher returns the grant that wins; of equal ones the strict, then that with the stricter
// transform, then that of the first rule.
func higher(a, b grant) grant {
	switch {
	case a.rank != b.rank:
		if b.rank > a.rank {
			return b
		}
	case a.own != b.own:
		if a.own {
			return b
		}
	case a.transform != b.transform:
		if b.transform > a.transform {
			return b
		}
	case b.rule < a.rule:
		return b
	}
	return a
}

// reach sums up the rules of a part of the trie.
type reach struct {
	grant     grant // the highest that is not none
	write     grant // the highest that is write
	writeFlag grant // the highest widening flag that permits write
}

func (r *reach) merge(o reach) {
	r.grant = higher(r.grant, o.grant)
	r.write = higher(r.write, o.write)
	r.writeFlag = higher(r.writeFlag, o.writeFlag)
}

// add takes g in. cover is a rule that matches wherever g does.
func (r *reach) add(g, cover grant) {
	isFlag := g.rank.standing() == standsFlag
	switch {
	case g.permission == None:
		return
	case isFlag:
		if g.permission == Write {
			r.writeFlag = higher(r.writeFlag, g)
		}
		if cover.rank != 0 && cover.permission == None {
			return // alone it never counts, but it may replace a rule that does
		}
	case g.rank < cover.rank:
		return
	}
	r.grant = higher(r.grant, g)
	if g.permission == Write {
		r.write = higher(r.write, g)
	}
}

// advance appends to dst the nodes reached from src by name. dst and src do
// not overlap; src has no duplicates, and neither has the result.
func advance(dst, src []*node, name string) []*node {
	for _, n := range src {
		if n.loops {
			dst = append(dst, n)
		}
	}
	for _, n := range src {
		if n.any != nil {
			dst = enter(dst, src, n.any)
		}
		if c := n.literals[name]; c != nil {
			dst = enter(dst, src, c)
		}
		if n.globs != nil {
			dst = n.globs.follow(dst, src, name)
		}
	}
	return dst
}

// enter appends n and, since ** takes no name too, its stars: unless these were
// in src, then they have stayed.
func enter(dst, src []*node, n *node) []*node {
	dst = append(dst, n)
	if n.stars == nil || n.nested && slices.Contains(src, n.stars) {
		return dst
	}
	return append(dst, n.stars)
}

// seal computes below and next for n and the nodes under it. cover is the
// highest-ranking rule, widening flags apart, that matches every path from n on.
func (n *node) seal(cover grant) {
	if n.loops {
		cover = higher(cover, n.end)
	}
	if n.stars != nil {
		n.stars.seal(cover)
	}
	for _, c := range n.literals {
		n.next.merge(n.sealChild(c, cover))
	}
	if n.globs != nil {
		for _, e := range n.globs.all() {
			n.next.merge(n.sealChild(e.to, cover))
		}
	}
	if n.any != nil {
		n.sealChild(n.any, cover)
	}
	if n.loops {
		n.below.add(n.end, cover)
		n.below.add(n.flag, cover)
	}
}

// sealChild seals c, adds what it may grant to n.below, and returns what may be
// granted at c itself.
func (n *node) sealChild(c *node, cover grant) reach {
	c.seal(cover)
	var here reach
	here.add(c.end, cover)
	here.add(c.flag, cover)
	n.below.merge(c.below)
	if s := c.stars; s != nil {
		here.add(s.end, cover)
		here.add(s.flag, cover)
		n.below.merge(s.below)
	}
	n.below.merge(here)
	return here
}
