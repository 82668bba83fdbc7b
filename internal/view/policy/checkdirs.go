package policy

import (
	"fmt"
	"slices"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// checkTraversable warns if directories that would be hidden show their names
// because of one rule: those a none-rule hides, and those no rule matches.
func (c *checker) checkTraversable(i int) {
	for _, pl := range c.places[i] {
		if pl.grant.permission == None {
			c.checkOpened(i, pl)
		} else {
			c.checkOpening(i, pl)
		}
	}
}

// checkOpened looks at a directory that the none-rule hides.
func (c *checker) checkOpened(hiding int, pl place) {
	elements := pl.elements
	if n := len(elements); n > 0 && elements[n-1].kind == elementStars {
		elements = elements[:n-1] // the directory itself, not one below it
	}
	path, ok := witness(elements)
	if !ok || path.IsRoot() {
		return
	}
	v, below := c.belowAt(path)
	if v.permission() != None || int(v.none.rule) != hiding || below.rank <= v.none.rank {
		return
	}
	hidden := c.opened[int(below.rule)]
	if !slices.Contains(hidden, hiding) {
		c.opened[int(below.rule)] = append(hidden, hiding)
	}
}

// warnOpened warns of each rule that shows directories others hide, once.
func (c *checker) warnOpened() {
	for opening, hidden := range c.opened {
		others := ""
		switch n := len(hidden) - 1; {
		case n == 1:
			others = " and another rule"
		case n > 1:
			others = fmt.Sprintf(" and %d other rules", n)
		}
		verb := "hide"
		if others == "" {
			verb = "hides"
		}
		c.warn(WarnTraversable, opening, hidden[0], "%s may match below directories that %s%s %s: their names show",
			c.policy.rules[opening], c.policy.rules[hidden[0]], others, verb)
	}
}

// checkOpening looks at directories on the way of a ** that no rule matches.
func (c *checker) checkOpening(granting int, pl place) {
	for i, e := range pl.elements {
		if e.kind != elementStars || i == len(pl.elements)-1 {
			continue
		}
		path, ok := witness(pl.elements[:i+1])
		if !ok {
			return
		}
		v, below := c.belowAt(path)
		if v.none.rank == 0 && v.permission() == None && int(below.rule) == granting {
			top, _ := witness(pl.elements[:i])
			c.warn(WarnTraversable, granting, NoRule,
				"%s may match at any depth below %s: the names of directories that no rule matches show there",
				c.policy.rules[granting], vpath.Quote(string(top)))
			return
		}
	}
}

func (c *checker) belowAt(path vpath.Path) (verdict, grant) {
	nodes, v := c.policy.walk(path, nil, nil)
	var below reach
	for _, n := range nodes {
		below.merge(n.below)
	}
	return v, below.grant
}
