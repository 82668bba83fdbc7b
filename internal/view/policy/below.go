package policy

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Below returns rules that permit at each path below dir, with dir as the root,
// what rules permit there: a policy of a directory, made one of a directory
// below it. Rules that match nothing below dir are left out. A priority is
// changed only where the new patterns would change which rule wins. The rules
// are of OriginRule. Errors: as Compile; Invalid for a rule that substitutes a
// file outside dir.
func Below(rules []Rule, dir vpath.Path) ([]Rule, error) {
	if dir.IsRoot() {
		return slices.Clone(rules), nil
	}
	p, err := Compile(rules, Options{})
	if err != nil {
		return nil, err
	}
	var moved []movedRule
	for i, r := range rules {
		reading, err := read(r)
		if err != nil {
			return nil, err
		}
		before := len(moved)
		transform, outside := r.Transform.below(dir)
		r.Transform = transform
		for _, a := range reading.alternatives {
			alone := len(reading.alternatives) == 1
			moved = append(moved, moveRule(r, reading.kind, a, alone, dir)...)
		}
		if outside != nil && len(moved) > before {
			return nil, errdefs.New(errdefs.Invalid, "%s: %w", where(i, r), outside)
		}
	}
	if _, above := p.walk(dir.Dir(), nil, nil); above.none.rank != 0 {
		r := p.rules[above.none.rule] // it hides dir and all below
		moved = append(moved, movedRule{withPattern(r, "**", Glob), above.none.rank})
	}
	slices.SortStableFunc(moved, func(a, b movedRule) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.Transform.strictness(), b.Transform.strictness()))
	})
	if !inOrder(moved) {
		renumber(moved)
	}
	out := make([]Rule, len(moved))
	for i, m := range moved {
		out[i] = m.Rule
	}
	return out, nil
}

// movedRule is a rule of the new root with the rank that it had.
type movedRule struct {
	Rule
	rank rank
}

// moveRule returns what alternative a of r is below dir; alone tells that r has
// no other.
func moveRule(r Rule, kind PatternType, a alternative, alone bool, dir vpath.Path) []movedRule {
	var moved []movedRule
	for _, rest := range remainders(a.elements, dir) {
		m := movedRule{r, newRank(standsRule, r, kind, a)}
		switch {
		case len(rest) == 0:
			m.Rule = withPattern(r, "/", File)
		case alone && len(rest) == len(a.elements): // it begins with **: nothing changes
		default:
			m.Rule = withPattern(r, patternOf(rest), Glob)
		}
		moved = append(moved, m)
	}
	return moved
}

func withPattern(r Rule, pattern string, kind PatternType) Rule {
	r.Pattern, r.Type = pattern, kind
	return r
}

// remainders returns what is left of a pattern's elements once they have
// matched the names of dir, each way of doing so once.
func remainders(elements []element, dir vpath.Path) [][]element {
	reached := map[int]bool{0: true}
	for name := range dir.Elements() {
		next := map[int]bool{}
		for i := range reached {
			for ; i < len(elements) && elements[i].kind == elementStars; i++ {
				next[i] = true
			}
			if i < len(elements) && elements[i].takesName(name) {
				next[i+1] = true
			}
		}
		reached = next
	}
	var rest [][]element
	for i := range len(elements) + 1 {
		// From stars all that follows them is reached too.
		if reached[i] && (i == 0 || i > len(elements) || !reached[i-1] || elements[i-1].kind != elementStars) {
			rest = append(rest, elements[i:])
		}
	}
	return rest
}

// patternOf spells elements as a glob from the root.
func patternOf(elements []element) string {
	var b strings.Builder
	for _, e := range elements {
		b.WriteByte('/')
		switch e.kind {
		case elementLiteral:
			writeLiteral(&b, e.text)
		case elementGlob:
			b.WriteString(e.text)
		case elementAny:
			b.WriteByte('*')
		case elementStars:
			b.WriteString("**")
		}
	}
	return cmp.Or(b.String(), "/")
}

// writeLiteral writes text as a glob that matches only it.
func writeLiteral(b *strings.Builder, text string) {
	for i := range len(text) {
		if strings.IndexByte(Metacharacters+"]},", text[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(text[i])
	}
}

// GlobOf returns the glob that matches only the path, from the root.
func GlobOf(path vpath.Path) string {
	var b strings.Builder
	writeLiteral(&b, string(path))
	return b.String()
}

// inOrder reports whether the rules, which are in the order of the ranks that
// they had, rank in that order now. Rules that tie only now must show the same
// content: of others the stricter would win.
func inOrder(moved []movedRule) bool {
	last := rank(0)
	for i, m := range moved {
		reading, err := read(m.Rule)
		if err != nil || len(reading.alternatives) != 1 {
			return false
		}
		now := newRank(standsRule, m.Rule, reading.kind, reading.alternatives[0])
		if now < last {
			return false
		}
		if now == last && i > 0 && m.rank != moved[i-1].rank && m.Transform != moved[i-1].Transform {
			return false
		}
		last = now
	}
	return true
}

// tied reports whether m and o won over the same rules.
func (m movedRule) tied(o movedRule) bool {
	return m.rank == o.rank && m.Transform.strictness() == o.Transform.strictness()
}

// renumber gives each rank that the rules had a priority of its own.
func renumber(moved []movedRule) {
	priority := int32(0)
	for i := range moved {
		if i > 0 && !moved[i].tied(moved[i-1]) && priority < math.MaxInt32 {
			priority++
		}
		moved[i].Priority = priority
	}
}
