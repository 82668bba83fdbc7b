package policy

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/view/policy/glob"
)

// Key names what the policy decides below the directory: two states of one policy with the same key
// permit the same for the same names, though perhaps by other rules of the same rank.
func (s State) Key() string {
	futures := s.policy.futures()
	ids := make([]uint32, 0, len(s.nodes))
	for _, n := range s.nodes {
		if n.loops || n.branches() {
			ids = append(ids, futures[n])
		}
	}
	slices.Sort(ids)
	b := []byte{byte(s.kind)}
	for _, id := range slices.Compact(ids) {
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	return string(binary.LittleEndian.AppendUint64(b, uint64(s.verdict.none.rank)))
}

// findFutures numbers the nodes of the trie. Nodes from which the same follows, by whatever rules,
// have the same number.
func (p *Policy) findFutures() map[*node]uint32 {
	f := futures{p.rules, map[*node]uint32{}, map[string]uint32{}}
	f.of(p.root)
	return f.numbers
}

type futures struct {
	rules   []Rule
	numbers map[*node]uint32
	known   map[string]uint32 // by everything that follows
}

func (f *futures) of(n *node) uint32 {
	if n == nil {
		return 0
	}
	b := fmt.Appendf(nil, "%v", n.loops)
	for _, g := range []grant{n.end, n.flag} {
		b = binary.LittleEndian.AppendUint64(b, uint64(g.rank))
		b = append(b, byte(g.permission))
		if g.rule >= 0 && g.rank != 0 {
			r := f.rules[g.rule]
			b = fmt.Appendf(b, "%q%v%q", r.Transform, r.Keep, r.Keys)
		}
	}
	child := func(name string, c *node) string {
		return name + "/" + string(binary.LittleEndian.AppendUint32(nil, f.of(c)))
	}
	children := []string{child("*", n.any), child("**", n.stars)}
	for name, c := range n.literals {
		children = append(children, child("="+name, c))
	}
	if n.globs != nil {
		for _, c := range n.globs.all() {
			children = append(children, child("~"+c.glob.Text, c.to))
		}
	}
	slices.Sort(children)
	key := string(b) + strings.Join(children, "/")
	number, ok := f.known[key]
	if !ok {
		number = uint32(len(f.known) + 1)
		f.known[key] = number
	}
	f.numbers[n] = number
	return number
}

// branches reports whether some rule goes on from n, through other names than **.
func (n *node) branches() bool { return n.literals != nil || n.globs != nil || n.any != nil }

// Ends reports whether everything below the directory is decided alike: no rule goes on there.
func (s State) Ends() bool {
	return !slices.ContainsFunc(s.nodes, func(n *node) bool { return n.loops || n.branches() })
}

// Branches are what tells the names in the directory apart: rules go on through these names, and
// through the names that the globs match.
func (s State) Branches() (names []string, globs []*glob.Glob) {
	if s.kind == pathRoot {
		names = append(names, string(ProjectFile[1:]))
	}
	for _, n := range s.nodes {
		for name := range n.literals {
			names = append(names, name)
		}
		if n.globs == nil {
			continue
		}
		for _, c := range n.globs.all() {
			globs = append(globs, c.glob)
		}
	}
	return names, globs
}

// Names returns every name that a rule spells out, at any place.
func (p *Policy) Names() []string {
	known := map[string]bool{string(ProjectFile[1:]): true}
	p.root.addNames(known)
	return slices.Collect(maps.Keys(known))
}

func (n *node) addNames(known map[string]bool) {
	for name, c := range n.literals {
		known[name] = true
		c.addNames(known)
	}
	if n.globs != nil {
		for _, c := range n.globs.all() {
			c.to.addNames(known)
		}
	}
	for _, c := range []*node{n.any, n.stars} {
		if c != nil {
			c.addNames(known)
		}
	}
}
