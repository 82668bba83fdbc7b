package policy

import (
	"slices"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// WritableBelow reports whether everything below dir may be written, apart from names that
// rules hide and that let own entries be made. If not, reason names what restricts it. It
// may err on the side of no.
func (p *Policy) WritableBelow(dir vpath.Path) (ok bool, reason string) {
	if d := p.Decide(dir); d.Permission != Write {
		return false, d.Reason
	}
	if slices.ContainsFunc(p.reserved, func(path vpath.Path) bool { return path.Within(dir) }) {
		return false, reasonReserved
	}
	if reason := p.lockOf(dir).below(); reason != "" {
		return false, reason
	}
	all, some := p.grantsBelow(dir)
	_, at := p.walk(dir, nil, nil)
	base := judge([]*node{&all}, at.none)
	if base.permission() != Write {
		return false, p.decision(nil, base, pathOrdinary).Reason
	}
	for _, g := range some {
		if restricts(g, &all) {
			return false, p.text(int(g.rule)).own
		}
	}
	return true, ""
}

// grantsBelow returns the highest-ranking rule and flag that match everything below dir, as
// the grants of a node, and all those that may match something there.
func (p *Policy) grantsBelow(dir vpath.Path) (all node, some []grant) {
	for i, r := range p.rules {
		eachPlacement(i, r, func(pl placement) {
			for _, rest := range remainders(pl.elements, dir) {
				if len(rest) == 0 {
					continue // dir itself
				}
				some = append(some, pl.grant)
				switch {
				case !covers(rest, []element{{kind: elementStars}}):
				case pl.grant.rank.standing() == standsFlag:
					all.flag = higher(all.flag, pl.grant)
				default:
					all.end = higher(all.end, pl.grant)
				}
			}
		})
	}
	return all, some
}

// eachPlacement calls do for each way in which rule i counts. Compile has read r.
func eachPlacement(i int, r Rule, do func(placement)) {
	reading, err := read(r)
	if err != nil {
		return
	}
	for _, a := range reading.alternatives {
		for _, pl := range placements(i, r, reading.kind, a) {
			do(pl)
		}
	}
}

// restricts reports whether g, which may match a path where all lets everything be written,
// could win there and let less be done.
func restricts(g grant, all *node) bool {
	switch {
	case g.permission == Write, g.permission == None && g.own:
		return false
	case g.rank.standing() == standsFlag:
		return g.rank > all.flag.rank
	case g.rank <= all.end.rank:
		return false
	case g.permission == None:
		return true
	}
	return all.flag.rank == 0 || g.rank.standing() > standsRule // else the flag takes its place
}

// RulesBelow returns the rules that may match a path at or below dir, without their
// sources. Errors: as Compile.
func RulesBelow(rules []Rule, dir vpath.Path) ([]Rule, error) {
	if _, err := Compile(rules, Options{}); err != nil {
		return nil, err
	}
	var below []Rule
	for i, r := range rules {
		matches := false
		eachPlacement(i, r, func(pl placement) { matches = matches || len(remainders(pl.elements, dir)) > 0 })
		if matches {
			r.Source = ""
			below = append(below, r)
		}
	}
	return below, nil
}
