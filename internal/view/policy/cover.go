package policy

import (
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// covers reports whether a certainly matches every path that b matches. It may
// miss that it does.
func covers(a, b []element) bool { return matchElements(a, b, element.takesElement) }

// takesElement reports whether e takes every name that o takes.
func (e element) takesElement(o element) bool {
	switch {
	case o.kind == elementStars:
		return false
	case e.kind == elementAny:
		return true
	case o.kind == elementLiteral:
		return e.takesName(o.text)
	case e.kind == elementGlob && o.kind == elementGlob:
		return e.text == o.text || e.glob.takesGlob(o.glob)
	}
	return false
}

// takesGlob holds for PREFIX*SUFFIX and a narrower glob.
func (g *glob) takesGlob(o *glob) bool {
	stars, others := 0, 0
	for _, t := range g.tokens {
		switch t.kind {
		case tokenStar:
			stars++
		case tokenAny, tokenClass:
			others++
		case tokenLiteral:
		}
	}
	return stars == 1 && others == 0 && o.least >= g.least &&
		strings.HasPrefix(o.prefix, g.prefix) && strings.HasSuffix(o.suffix, g.suffix)
}

// freshName is a name that no rule is likely to spell out.
const freshName = "\x01"

// witness returns a path that elements match, ** taking one name. It is ok only
// if one was found.
func witness(elements []element) (path vpath.Path, ok bool) {
	path = vpath.Root
	for _, e := range elements {
		name := freshName
		switch e.kind {
		case elementLiteral:
			name = e.text
		case elementGlob:
			name = e.glob.witness()
			if vpath.CheckName(name) != nil || !e.glob.match(name) {
				return "", false
			}
		case elementAny, elementStars:
		}
		path = path.Child(name)
	}
	return path, true
}

func (g *glob) witness() string {
	var b strings.Builder
	for _, t := range g.tokens {
		switch t.kind {
		case tokenLiteral:
			b.WriteString(t.literal)
		case tokenAny:
			b.WriteString(freshName)
		case tokenClass:
			b.WriteRune(t.class.witness())
		case tokenStar:
		}
	}
	return b.String()
}

// witness returns a character in the class, if it is not too odd a class.
func (c *class) witness() rune {
	if !c.negated {
		return c.ranges[0].low
	}
	r := '\x01'
	for r == '/' || c.holds(r) {
		r++
	}
	return r
}
