package policy

import (
	"cmp"
	"slices"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Explanation is a decision with everything that led to it.
type Explanation struct {
	Path     vpath.Path
	Decision Decision
	// Matches are the rules that match the path itself, the winner first, then
	// in the order in which they would win.
	Matches []Match
	// Inherited is the none-rule that wins at Ancestor and outranks the path's
	// own winner; NoRule if there is none, or if a reserved path is inherited.
	Inherited int
	Ancestor  vpath.Path // "" if nothing is inherited
	// Below is the highest-ranking rule that may grant something below the
	// path; NoRule if there is none. It is what makes a directory traversable.
	Below int
}

// Match is a rule that matches a path.
type Match struct {
	Rule int    // index in Policy.Rules
	Why  string // why it wins, or why it does not
}

// Explain returns how p decides at path. It looks at every rule: for people.
func (p *Policy) Explain(path vpath.Path) Explanation {
	nodes, v := p.walk(path, nil, nil)
	e := Explanation{Path: path, Decision: p.Decide(path), Inherited: NoRule, Below: NoRule}
	e.Matches = p.matches(path, v)
	if v.none.rank > v.own.rank {
		e.Inherited = int(v.none.rule)
		e.Ancestor = p.origin(path, v.none)
	}
	var below reach
	for _, n := range nodes {
		below.merge(n.below)
	}
	if below.grant.rank > v.none.rank {
		e.Below = int(below.grant.rule)
	}
	return e
}

// Matching returns the indexes of all rules that match path, in the order of
// the rules.
func (p *Policy) Matching(path vpath.Path) []int {
	var out []int
	for _, g := range p.grants(path) {
		out = append(out, int(g.rule))
	}
	return out
}

// grants returns each matching rule with the highest rank it has at path.
func (p *Policy) grants(path vpath.Path) []grant {
	names := slices.Collect(path.Elements())
	var out []grant
	for i, r := range p.rules {
		reading, err := read(r)
		if err != nil {
			continue // Compile has accepted it
		}
		best := grant{rule: int32(i), permission: r.Permission, own: r.Own, transform: r.Transform.strictness()}
		for _, a := range reading.alternatives {
			for _, pl := range placements(i, r, reading.kind, a) {
				if matchElements(pl.elements, names, element.takesName) {
					best.rank = max(best.rank, pl.grant.rank)
				}
			}
		}
		if best.rank != 0 {
			out = append(out, best)
		}
	}
	return out
}

func (p *Policy) matches(path vpath.Path, v verdict) []Match {
	found := p.grants(path)
	// A widening flag comes after a none-rule and before every other rule.
	flagsFirst := v.rule.permission != None
	above := func(g grant) bool {
		return flagsFirst && g.rank.standing() == standsFlag && v.rule.rank.standing() <= standsRule
	}
	slices.SortStableFunc(found, func(a, b grant) int {
		if x, y := above(a), above(b); x != y {
			if x {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(b.transform, a.transform))
	})
	out := make([]Match, len(found))
	for i, g := range found {
		out[i].Rule = int(g.rule)
		switch {
		case i > 0 && above(found[0]) && !above(g):
			out[i].Why = "loses: a flag is above a rule that is not none"
		case i > 0:
			out[i].Why = "loses: " + found[0].lead(g)
		case len(found) == 1:
			out[i].Why = "wins: no other rule matches"
		case above(g) && !above(found[1]):
			out[i].Why = "wins: a flag is above a rule that is not none"
		default:
			out[i].Why = "wins: " + g.lead(found[1])
		}
	}
	return out
}

// origin returns the ancestor of path at which g wins.
func (p *Policy) origin(path vpath.Path, g grant) vpath.Path {
	for ancestor := range path.Ancestors() {
		if _, v := p.walk(ancestor, nil, nil); v.own == g {
			return ancestor
		}
	}
	return ""
}
