package policy

import (
	"fmt"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// checkStrict warns of a flag that lets a directory be written, if strict rules hide
// some of the names below it: nothing can be made at those. Rules that are own say
// nothing of what may be made, and --hide was asked for beside the flag.
func (c *checker) checkStrict(i int, r Rule) {
	if r.Origin != OriginFlag || r.Permission != Write {
		return
	}
	for _, pl := range c.places[i] {
		dir, ok := c.writtenBelow(pl)
		if !ok {
			continue
		}
		var hiding []int
		for j, other := range c.policy.rules {
			if other.Origin == OriginRule && other.Permission == None && !other.Own && c.hidesBelow(j, dir) {
				hiding = append(hiding, j)
			}
		}
		if len(hiding) == 0 {
			continue
		}
		more := ""
		if n := len(hiding) - 1; n > 0 {
			more = fmt.Sprintf(", and so do %d more strict rules", n)
		}
		c.warn(WarnStrict, i, hiding[0], "%s: nothing can be made below it at the names that the strict %s hides%s; to allow a file, name its path: %s",
			r, c.policy.rules[hiding[0]], more, Flag{Write, exampleIn(r.Pattern)})
		return
	}
}

// writtenBelow returns a directory below which pl lets all be written, but for what
// other rules say of single names. Where pl does not count there is none:
// checkShadowed warns of that.
func (c *checker) writtenBelow(pl place) (vpath.Path, bool) {
	dir, ok := pl.dir()
	if !ok {
		return "", false
	}
	_, v := c.policy.walk(dir.Child(freshName), nil, nil)
	return dir, v.permission() == Write
}

// dir returns a directory below which pl matches everything.
func (pl place) dir() (vpath.Path, bool) {
	elements := pl.elements
	if n := len(elements); n == 0 || elements[n-1].kind != elementStars {
		return "", false
	}
	if elements[0].kind == elementStars {
		elements = elements[1:] // at the root
	}
	dir, ok := witness(elements[:max(0, len(elements)-1)])
	if !ok || dir.IsRoot() {
		return "", false
	}
	return dir, true
}

// exampleIn is a file in the directory that the pattern names, for an example.
func exampleIn(pattern string) string {
	if dir := strings.Trim(strings.TrimSuffix(pattern, "**"), "/"); !strings.ContainsAny(dir, Metacharacters) {
		return dir + "/FILE"
	}
	return "DIR/FILE"
}

// hidesBelow reports whether rule j certainly hides some path below dir.
func (c *checker) hidesBelow(j int, dir vpath.Path) bool {
	for _, pl := range c.places[j] {
		for _, rest := range remainders(pl.elements, dir) {
			below, ok := witness(rest)
			if !ok || below.IsRoot() {
				continue
			}
			path := dir
			for name := range below.Elements() {
				path = path.Child(name)
			}
			if _, v := c.policy.walk(path, nil, nil); v.permission() == None && int(v.none.rule) == j {
				return true
			}
		}
	}
	return false
}
