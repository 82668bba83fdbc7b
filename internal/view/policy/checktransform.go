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

// checkRevealed warns of the first flag that shows the content of files for which rule i shows
// another one.
func (c *checker) checkRevealed(i int, r Rule) {
	if r.Transform.IsZero() {
		return
	}
	for _, path := range c.examples(i) {
		d := c.policy.Decide(path)
		if d.Permission >= Read && d.Rule != NoRule && c.policy.rules[d.Rule].Origin == OriginFlag {
			c.warn(WarnReveals, d.Rule, i, "%s shows the content of files for which the %s shows another content: narrow the flag if you do not want that", c.policy.rules[d.Rule], r)
			return
		}
	}
}

// examples returns paths that rule i matches: one of each pattern, at any place and in each
// directory that a flag names.
func (c *checker) examples(i int) []vpath.Path {
	var paths []vpath.Path
	add := func(dir vpath.Path, elements []element) {
		if path, ok := witness(elements); ok {
			paths = append(paths, path.Rebase(vpath.Root, dir))
		}
	}
	for _, pl := range c.places[i] {
		add(vpath.Root, pl.elements)
		for j, r := range c.policy.rules {
			if r.Origin != OriginFlag {
				continue
			}
			for _, flag := range c.places[j] {
				if dir, ok := flag.dir(); ok {
					for _, rest := range remainders(pl.elements, dir) {
						add(dir, rest)
					}
				}
			}
		}
	}
	return paths
}

// Reveals reports whether the flags among the rules show the content of files for which another
// rule shows another content, as far as that is certain.
func (p *Policy) Reveals() bool {
	if !p.transforms {
		return false
	}
	c := newChecker(p)
	for i, r := range p.rules {
		c.checkRevealed(i, r)
	}
	return len(c.found) > 0
}
