package glob

import (
	"slices"
	"unicode/utf8"
)

// newGroups returns one byte of each group of bytes that no place in globs and no excepted name
// tells apart, the most readable of each, readable groups first.
func newGroups(globs []*Glob, except []string) []byte {
	var cuts [256]bool // a byte is alone in its group
	var bounds []byte  // bytes of the characters at which classes begin and end
	characters := false
	cut := func(s string) {
		for i := range len(s) {
			cuts[s[i]] = true
		}
	}
	for _, name := range append([]string{"."}, except...) {
		cut(name)
	}
	for _, g := range globs {
		for _, t := range g.Tokens {
			cut(t.Literal)
			characters = characters || t.Kind == Any || t.Kind == InClass
			for _, r := range t.Class.bounds() {
				encoded := utf8.AppendRune(nil, r)
				cut(string(encoded))
				bounds = append(bounds, encoded...)
			}
		}
	}
	of := func(b byte) byteKind {
		switch {
		case cuts[b]:
			return byteKind{alone: 1 + int(b)}
		case characters:
			return byteKind{encoding: byteGroup(b), above: above(b, bounds)}
		}
		return byteKind{}
	}
	var out []byte
	known := map[byteKind]bool{}
	for _, b := range readableFirst() {
		if g := of(b); b != 0 && b != '/' && !known[g] {
			known[g] = true
			out = append(out, b)
		}
	}
	return out
}

// byteKind is what bytes of one group have in common.
type byteKind struct{ alone, encoding, above int }

// above counts the bounds that are less than b.
func above(b byte, bounds []byte) (n int) {
	for _, bound := range bounds {
		if b > bound {
			n++
		}
	}
	return n
}

// bounds are the first and last characters of the ranges, and those beside them.
func (c *Class) bounds() []rune {
	if c == nil {
		return nil
	}
	var out []rune
	for _, r := range c.Ranges {
		for _, bound := range []rune{r.Low - 1, r.Low, r.High, r.High + 1} {
			if utf8.ValidRune(bound) {
				out = append(out, bound)
			}
		}
	}
	return out
}

// readableFirst returns all bytes, letters first.
func readableFirst() []byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	kind := func(b byte) int {
		switch {
		case b >= 'a' && b <= 'z':
			return 0
		case b >= 'A' && b <= 'Z', b >= '0' && b <= '9':
			return 1
		case b > ' ' && b < 0x7f:
			return 2
		case b < 0x80:
			return 3
		}
		return 4
	}
	slices.SortStableFunc(all, func(x, y byte) int { return kind(x) - kind(y) })
	return all
}

// nameTree finds names byte by byte. Node 0 is the beginning, node -1 that of no name.
type nameTree []nameNode

type nameNode struct {
	children map[byte]int32
	end      bool
}

func newNameTree(names []string) nameTree {
	t := nameTree{{}}
	for _, name := range names {
		n := int32(0)
		for i := range len(name) {
			next := t.next(n, name[i])
			if next < 0 {
				next = int32(len(t))
				if t[n].children == nil {
					t[n].children = map[byte]int32{}
				}
				t[n].children[name[i]] = next
				t = append(t, nameNode{})
			}
			n = next
		}
		t[n].end = true
	}
	return t
}

func (t nameTree) next(n int32, b byte) int32 {
	if n >= 0 {
		if next, ok := t[n].children[b]; ok {
			return next
		}
	}
	return -1
}

// children are the bytes that go on from n.
func (t nameTree) children(n int32) map[byte]int32 {
	if n < 0 {
		return nil
	}
	return t[n].children
}

func (t nameTree) ends(n int32) bool { return n >= 0 && t[n].end }
