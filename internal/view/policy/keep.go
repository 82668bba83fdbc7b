package policy

import (
	"slices"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Keeps reports whether some rules let changes be applied without a review.
func Keeps(rules []Rule) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool { return r.Keep })
}

// KeptBy returns the rule that lets a change at path be applied without a review, and whether
// there is one: the rule that decides, which no widening flag has replaced.
func (p *Policy) KeptBy(path vpath.Path) (Rule, bool) {
	d := p.Decide(path)
	if d.Rule == NoRule || d.Permission != Write {
		return Rule{}, false
	}
	r := p.rules[d.Rule]
	return r, r.Keep
}
