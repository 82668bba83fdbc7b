package policy

import (
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy/glob"
)

// The bounds of one pattern. They keep a match in time that does not depend on
// what the pattern is.
const (
	MaxPatternBytes = 4096 // PATH_MAX, linux/limits.h: a longer one names nothing
	maxDoubleStars  = 16   // in one alternative
)

type elementKind uint8

const (
	elementLiteral elementKind = iota // exactly this name
	elementGlob                       // a name the glob matches
	elementAny                        // one name: *
	elementStars                      // any number of names, none too: **
)

// element is one path element of a pattern. text is the name of a literal and
// the source of a glob: equal kind and text mean the same language.
type element struct {
	kind elementKind
	text string
	glob *glob.Glob
}

// alternative is one path pattern without braces.
type alternative struct {
	elements  []element // no two neighbouring elementStars
	prefix    int       // bytes of the literal beginning, the leading slash included
	wildcards int
	anchored  bool
}

// reading is a rule's pattern, understood.
type reading struct {
	kind         PatternType // never Auto
	alternatives []alternative
}

// Metacharacters are what makes a pattern of type auto a glob.
const Metacharacters = `*?[{\`

// read understands r's pattern. Errors: Invalid, without r's source.
func read(r Rule) (reading, error) {
	text := r.Pattern
	if err := checkText(text); err != nil {
		return reading{}, err
	}
	kind := r.Type
	anchored := kind == File || kind == Directory || strings.Contains(text[:len(text)-1], "/")
	if text[0] == '!' && (kind == Auto || kind == Glob) {
		return reading{}, errdefs.New(errdefs.Invalid,
			`a pattern cannot be negated: give a rule of higher priority, or write \! for the character`)
	}
	if kind == Auto {
		kind = autoType(text)
	}
	if kind == Glob {
		alternatives, err := readGlob(text, anchored)
		return reading{Glob, alternatives}, err
	}
	if r.Type == File && strings.HasSuffix(text, "/") && strings.Trim(text, "/.") != "" {
		return reading{}, errdefs.New(errdefs.Invalid, "a file has no slash at its end: write type directory")
	}
	a, err := readLiteral(text, kind, anchored)
	return reading{kind, []alternative{a}}, err
}

func checkText(text string) error {
	switch {
	case text == "":
		return errdefs.New(errdefs.Invalid, "it is empty")
	case len(text) > MaxPatternBytes:
		return errdefs.New(errdefs.Invalid, "it is longer than %d bytes", MaxPatternBytes)
	case strings.Contains(text, "\x00"):
		return errdefs.New(errdefs.Invalid, "it holds a NUL")
	}
	return nil
}

// autoType is the type of a pattern whose type is not given.
func autoType(text string) PatternType {
	switch {
	case strings.ContainsAny(text, Metacharacters):
		return Glob
	case strings.HasSuffix(text, "/"):
		return Directory
	}
	return File
}

// readLiteral reads a pattern of type file or directory: no character of it is
// special.
func readLiteral(text string, kind PatternType, anchored bool) (alternative, error) {
	path, err := vpath.Parse(text)
	if err != nil {
		return alternative{}, err
	}
	a := alternative{prefix: len(path), anchored: anchored || path.IsRoot()}
	if !a.anchored {
		a.prefix, a.wildcards = 1, 1
		a.elements = append(a.elements, element{kind: elementStars})
	}
	for name := range path.Elements() {
		a.elements = append(a.elements, element{kind: elementLiteral, text: name})
	}
	if kind == Directory {
		a.elements = append(a.elements, element{kind: elementStars})
	}
	return a, nil
}

func readGlob(text string, anchored bool) ([]alternative, error) {
	texts, err := expandBraces(text)
	if err != nil {
		return nil, err
	}
	out := make([]alternative, 0, len(texts))
	for _, t := range texts {
		a, err := readAlternative(t, anchored)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// readAlternative reads a glob without braces.
func readAlternative(text string, anchored bool) (alternative, error) {
	a := alternative{anchored: true, elements: make([]element, 0, 3+strings.Count(text, "/"))}
	for part := range strings.SplitSeq(text, "/") {
		if part == "" || part == "." {
			continue
		}
		if len(a.elements) == 0 && !anchored {
			a.anchored = false
			a.append(element{kind: elementStars})
		}
		e, err := readElement(part)
		if err != nil {
			return a, err
		}
		a.append(e)
	}
	if strings.HasSuffix(text, "/") {
		a.append(element{kind: elementStars})
	}
	a.measure()
	return a, a.check()
}

// append adds e; stars after stars change nothing.
func (a *alternative) append(e element) {
	n := len(a.elements)
	if e.kind == elementStars && n > 0 && a.elements[n-1].kind == elementStars {
		return
	}
	a.elements = append(a.elements, e)
}

// measure sets how specific the alternative is, and lets **/* match the root
// like **. A pattern that takes everything below its literal beginning is less
// specific than any other with that beginning, so it counts as having more
// wildcards: else /src/** would win over /src/**/*.pem.
func (a *alternative) measure() {
	beginning := literals(a.elements)
	a.prefix = 1
	for i, e := range a.elements[:beginning] {
		a.prefix += len(e.text)
		if i > 0 {
			a.prefix++
		}
	}
	rest := a.elements[beginning:]
	for _, e := range rest {
		a.wildcards += e.wildcards()
	}
	a.wildcards = min(a.wildcards, everythingBelow-1)
	if len(rest) == 0 {
		return
	}
	if beginning > 0 {
		a.prefix++
	}
	if rest[0].kind == elementGlob {
		a.prefix += len(rest[0].glob.Prefix)
	}
	anyName := len(rest) == 2 && rest[1].kind == elementAny
	if rest[0].kind == elementStars && (len(rest) == 1 || anyName) {
		a.wildcards += everythingBelow
		if beginning == 0 {
			a.elements = a.elements[:1]
		}
	}
}

// literals returns how many literal elements the pattern begins with.
func literals(elements []element) int {
	for i, e := range elements {
		if e.kind != elementLiteral {
			return i
		}
	}
	return len(elements)
}

func (e element) wildcards() int {
	switch e.kind {
	case elementLiteral:
		return 0
	case elementGlob:
		return len(e.glob.Tokens) - countLiterals(e.glob.Tokens)
	case elementAny, elementStars:
	}
	return 1
}

func countLiterals(tokens []glob.Token) int {
	n := 0
	for _, t := range tokens {
		if t.Kind == glob.Literal {
			n++
		}
	}
	return n
}

func (a *alternative) check() error {
	stars := 0
	for _, e := range a.elements {
		if e.kind == elementStars {
			stars++
		}
	}
	if stars > maxDoubleStars {
		return errdefs.New(errdefs.Invalid, "it holds %d times **, at most %d can be matched in bounded time",
			stars, maxDoubleStars)
	}
	return nil
}

// readElement reads one element of a glob. ** is special only as a whole
// element; within one it is like *, as in doublestar and bash.
func readElement(s string) (element, error) {
	if s == "**" {
		return element{kind: elementStars}, nil
	}
	if !strings.ContainsAny(s, `*?[\`) {
		return element{kind: elementLiteral, text: s}, vpath.CheckName(s)
	}
	tokens, err := glob.Parse(s)
	if err != nil {
		return element{}, err
	}
	if len(tokens) == 1 {
		switch tokens[0].Kind {
		case glob.Star:
			return element{kind: elementAny}, nil
		case glob.Literal:
			name := tokens[0].Literal
			return element{kind: elementLiteral, text: name}, vpath.CheckName(name)
		case glob.Any, glob.InClass:
		}
	}
	g := glob.New(s, tokens)
	if g.Least > vpath.NameMax {
		return element{}, errdefs.New(errdefs.Invalid, "no name is as long as the %d bytes an element asks for", g.Least)
	}
	return element{kind: elementGlob, text: s, glob: g}, nil
}

// matchElements reports whether the elements match the whole of symbols, which
// are names or the elements of another pattern; takes tells whether one element
// other than ** takes one symbol. It needs no index and at most
// len(symbols) × len(elements) steps.
func matchElements[S any](elements []element, symbols []S, takes func(element, S) bool) bool {
	// reached[i]: the symbols so far can be matched by elements[:i].
	reached := make([]bool, len(elements)+1)
	next := make([]bool, len(elements)+1)
	reached[0] = true
	skipStars(elements, reached)
	for _, symbol := range symbols {
		clear(next)
		for i, e := range elements {
			switch {
			case !reached[i]:
			case e.kind == elementStars:
				next[i] = true
			case takes(e, symbol):
				next[i+1] = true
			}
		}
		skipStars(elements, next)
		reached, next = next, reached
	}
	return reached[len(elements)]
}

func skipStars(elements []element, reached []bool) {
	for i, e := range elements {
		if reached[i] && e.kind == elementStars {
			reached[i+1] = true
		}
	}
}

func (e element) takesName(name string) bool {
	switch e.kind {
	case elementLiteral:
		return e.text == name
	case elementGlob:
		return e.glob.Match(name)
	case elementAny, elementStars:
	}
	return true
}
