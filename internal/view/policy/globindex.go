package policy

import (
	"cmp"
	"slices"

	"github.com/agentfense/agentfense/internal/view/policy/glob"
)

// fewGlobs is up to how many globs are simply tried one after the other.
const fewGlobs = 8

// globIndex finds the children of a node whose glob matches a name. With more
// than fewGlobs each is filed under its literal beginning or end, the longer
// of the two; globs without either are tried one by one.
type globIndex struct {
	loose    []globChild
	prefixed affixIndex
	suffixed affixIndex
}

type globChild struct {
	glob *glob.Glob
	to   *node
}

// affixIndex holds globs by literal affix. There is one look-up for each
// length that some affix has, and only if its outermost byte fits too.
type affixIndex struct {
	lengths  []affixLength
	children map[string][]globChild
}

type affixLength struct {
	bytes     int
	outermost [4]uint64 // bit set of first bytes of prefixes, last bytes of suffixes
}

func newGlobIndex(children []globChild) *globIndex {
	x := new(globIndex)
	if len(children) <= fewGlobs {
		x.loose = children
		return x
	}
	for _, c := range children {
		prefix, suffix := c.glob.Prefix, c.glob.Suffix
		switch {
		case prefix == "" && suffix == "":
			x.loose = append(x.loose, c)
		case len(prefix) >= len(suffix):
			x.prefixed.add(prefix, prefix[0], c)
		default:
			x.suffixed.add(suffix, suffix[len(suffix)-1], c)
		}
	}
	return x
}

func (x *affixIndex) add(affix string, outermost byte, c globChild) {
	if x.children == nil {
		x.children = map[string][]globChild{}
	}
	x.children[affix] = append(x.children[affix], c)
	i, found := slices.BinarySearchFunc(x.lengths, len(affix), func(l affixLength, n int) int {
		return cmp.Compare(l.bytes, n)
	})
	if !found {
		x.lengths = slices.Insert(x.lengths, i, affixLength{bytes: len(affix)})
	}
	x.lengths[i].outermost[outermost>>6] |= 1 << (outermost & 63)
}

func (l *affixLength) fits(name string, outermost byte) bool {
	return l.bytes <= len(name) && l.outermost[outermost>>6]&(1<<(outermost&63)) != 0
}

// follow appends the children that name leads to, as advance does.
func (x *globIndex) follow(dst, src []*node, name string) []*node {
	if name == "" {
		return dst
	}
	have := glob.ByteMask(name)
	dst = enterMatching(dst, src, x.loose, name, have)
	for i := range x.prefixed.lengths {
		if l := &x.prefixed.lengths[i]; l.fits(name, name[0]) {
			dst = enterMatching(dst, src, x.prefixed.children[name[:l.bytes]], name, have)
		}
	}
	for i := range x.suffixed.lengths {
		if l := &x.suffixed.lengths[i]; l.fits(name, name[len(name)-1]) {
			dst = enterMatching(dst, src, x.suffixed.children[name[len(name)-l.bytes:]], name, have)
		}
	}
	return dst
}

func enterMatching(dst, src []*node, children []globChild, name string, have uint64) []*node {
	for _, c := range children {
		if c.glob.Need&^have == 0 && c.glob.Match(name) {
			dst = enter(dst, src, c.to)
		}
	}
	return dst
}

// all returns every child.
func (x *globIndex) all() []globChild {
	all := slices.Clone(x.loose)
	for _, index := range []affixIndex{x.prefixed, x.suffixed} {
		for _, children := range index.children {
			all = append(all, children...)
		}
	}
	return all
}

// tried returns how many globs no literal narrows: they are tried one by one.
func (x *globIndex) tried() int {
	if x.prefixed.children == nil && x.suffixed.children == nil && len(x.loose) <= fewGlobs {
		return 0
	}
	n := len(x.loose)
	for _, index := range []affixIndex{x.prefixed, x.suffixed} {
		for _, children := range index.children {
			n += len(children) - 1
		}
	}
	return n
}
