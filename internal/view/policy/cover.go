package policy

import (
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
		return e.text == o.text || e.glob.Covers(o.glob)
	}
	return false
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
			name = e.glob.Example()
			if vpath.CheckName(name) != nil || !e.glob.Match(name) {
				return "", false
			}
		case elementAny, elementStars:
		}
		path = path.Child(name)
	}
	return path, true
}
