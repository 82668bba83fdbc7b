package policy

import (
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// checkSubstitute warns if the policy does not show the content of the file that rule i
// substitutes, so that the paths of the rule are absent.
func (c *checker) checkSubstitute(i int, r Rule) {
	if r.Transform.Substitute == "" {
		return
	}
	for _, pl := range c.places[i] {
		target, ok := r.Transform.targetOf(pl.elements)
		if !ok || c.policy.ShowsContent(target) {
			continue
		}
		d := c.policy.Decide(target)
		c.warn(WarnSubstitute, i, d.Rule, "%s: a file that it matches is absent, because the policy does not show the content of %s: %s", r, target, d.Reason)
		return
	}
}

// targetOf returns the substitute of the paths that elements match, if all have the same.
func (t Transform) targetOf(elements []element) (vpath.Path, bool) {
	if strings.Contains(t.Substitute, "/") {
		return t.Target(vpath.Root), true
	}
	if literals(elements) < len(elements) {
		return "", false
	}
	path, ok := witness(elements)
	return t.Target(path), ok
}
