// Package glob matches one element of a path, a name, against a pattern with the
// wildcards *, ? and […]. It knows neither slashes nor braces, which package policy
// reads. Classes answers which combinations of patterns a name can match. Pure.
package glob

import (
	"strings"
	"unicode/utf8"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Glob is one element of a pattern that holds a wildcard.
// It matches names without a slash; literals compare byte by byte, ? and […]
// take one character, or one byte where the name is not valid UTF-8.
type Glob struct {
	Text   string // as it is written: globs with the same text match the same names
	Tokens []Token
	Least  int    // no shorter name matches, in bytes
	Prefix string // every matching name begins with it
	Suffix string // every matching name ends with it
	Need   uint64 // ByteMask bits that every matching name has
}

// Kind is what a token matches.
type Kind uint8

// The kinds.
const (
	Literal Kind = iota // exactly the bytes of Token.Literal
	Star                // any number of bytes
	Any                 // one character
	InClass             // one character of Token.Class
)

// Token is a part of a glob.
type Token struct {
	Kind    Kind
	Literal string
	Class   *Class
}

// Class is a character class. Broken UTF-8 is in no range, so a byte of it is
// matched by a negated class only.
type Class struct {
	Negated bool
	Ranges  []Range
}

// Range are the characters from Low to High, both included.
type Range struct{ Low, High rune }

// New returns the glob of tokens, which are the result of Parse(text) with at least one wildcard.
func New(text string, tokens []Token) *Glob {
	g := &Glob{Text: text, Tokens: tokens}
	for _, t := range tokens {
		switch t.Kind {
		case Literal:
			g.Least += len(t.Literal)
			g.Need |= ByteMask(t.Literal)
		case Any, InClass:
			g.Least++
		case Star:
		}
	}
	g.Prefix = tokens[0].Literal
	g.Suffix = tokens[len(tokens)-1].Literal
	return g
}

// ByteMask has a bit for each byte of s; two bytes may share one.
func ByteMask(s string) uint64 {
	var mask uint64
	for i := range len(s) {
		mask |= 1 << (s[i] & 63)
	}
	return mask
}

// Match reports whether the glob matches name. It takes at most len(name) × len(tokens) steps:
// only the last star met is ever tried again.
func (g *Glob) Match(name string) bool {
	if len(name) < g.Least || !strings.HasPrefix(name, g.Prefix) || !strings.HasSuffix(name, g.Suffix) {
		return false
	}
	t, n := 0, 0
	star, starAt := -1, 0
	for t < len(g.Tokens) || n < len(name) {
		if t < len(g.Tokens) {
			if g.Tokens[t].Kind == Star {
				star, starAt = t, n
				t++
				continue
			}
			if size := g.Tokens[t].take(name[n:]); size > 0 {
				t++
				n += size
				continue
			}
		}
		if star < 0 || starAt >= len(name) {
			return false
		}
		starAt += g.stride(star, name[starAt:])
		t, n = star+1, starAt
	}
	return true
}

// Matching returns the indexes of the globs that match name.
func Matching(globs []*Glob, name string) []int {
	var out []int
	for i, g := range globs {
		if g.Match(name) {
			out = append(out, i)
		}
	}
	return out
}

// stride is how far the star at index i moves on: a byte before a literal, so
// that literals need not begin where a character does, else a character, so
// that ? and […] never see a part of one.
func (g *Glob) stride(i int, rest string) int {
	if i+1 < len(g.Tokens) && g.Tokens[i+1].Kind == Literal {
		return 1
	}
	_, size := utf8.DecodeRuneInString(rest)
	return size
}

// take returns how many bytes of s the token matches at its beginning, 0 if it
// does not match.
func (t *Token) take(s string) int {
	if t.Kind == Literal {
		if strings.HasPrefix(s, t.Literal) {
			return len(t.Literal)
		}
		return 0
	}
	r, size := utf8.DecodeRuneInString(s)
	if t.Kind == Any || size == 0 {
		return size
	}
	broken := r == utf8.RuneError && size == 1
	if (!broken && t.Class.Holds(r)) != t.Class.Negated {
		return size
	}
	return 0
}

// Holds reports whether r is in one of the ranges.
func (c *Class) Holds(r rune) bool {
	for _, q := range c.Ranges {
		if q.Low <= r && r <= q.High {
			return true
		}
	}
	return false
}

// Parse reads one element of a glob; braces are expanded already. The
// literals between wildcards are joined and unescaped, neighbouring stars are
// one. Errors: Invalid.
func Parse(s string) ([]Token, error) {
	var tokens []Token
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			tokens = append(tokens, Token{Kind: Literal, Literal: literal.String()})
			literal.Reset()
		}
	}
	for i := 0; i < len(s); {
		switch s[i] {
		case '*':
			flush()
			if len(tokens) == 0 || tokens[len(tokens)-1].Kind != Star {
				tokens = append(tokens, Token{Kind: Star})
			}
			i++
		case '?':
			flush()
			tokens = append(tokens, Token{Kind: Any})
			i++
		case '[':
			end, err := ClassEnd(s, i)
			if err != nil {
				return nil, err
			}
			c, err := parseClass(s[i+1 : end-1])
			if err != nil {
				return nil, err
			}
			flush()
			tokens = append(tokens, Token{Kind: InClass, Class: c})
			i = end
		case '\\':
			i++
			fallthrough
		default:
			literal.WriteByte(s[i])
			i++
		}
	}
	flush()
	return tokens, nil
}

// ClassEnd returns the index after the class that begins at s[i].
func ClassEnd(s string, i int) (int, error) {
	for j := i + 1; j < len(s); j++ {
		switch s[j] {
		case '\\':
			j++
		case '/':
			return 0, errdefs.New(errdefs.Invalid, "a class cannot hold a slash")
		case ']':
			return j + 1, nil
		}
	}
	return 0, errdefs.New(errdefs.Invalid, "a class is not closed: ] is missing")
}

// parseClass reads what stands between the brackets.
func parseClass(s string) (*Class, error) {
	c := new(Class)
	if s != "" && (s[0] == '!' || s[0] == '^') {
		c.Negated = true
		s = s[1:]
	}
	if s == "" {
		return nil, errdefs.New(errdefs.Invalid, "a class is empty")
	}
	if strings.HasPrefix(s, "[:") {
		return nil, errdefs.New(errdefs.Invalid, "a named class is not known: write its characters")
	}
	for s != "" {
		low, rest, err := classRune(s)
		if err != nil {
			return nil, err
		}
		high := low
		if len(rest) > 1 && rest[0] == '-' {
			if high, rest, err = classRune(rest[1:]); err != nil {
				return nil, err
			}
		}
		if high < low {
			return nil, errdefs.New(errdefs.Invalid, "the range %s in a class is empty",
				vpath.Quote(string(low)+"-"+string(high)))
		}
		c.Ranges = append(c.Ranges, Range{low, high})
		s = rest
	}
	return c, nil
}

func classRune(s string) (r rune, rest string, err error) {
	if s[0] == '\\' && len(s) > 1 {
		s = s[1:]
	}
	r, size := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && size == 1 {
		return 0, "", errdefs.New(errdefs.Invalid, "a class holds characters, and byte %#x is part of none", s[0])
	}
	return r, s[size:], nil
}

// Covers holds for PREFIX*SUFFIX and a narrower glob. It may miss that g matches every name that o
// matches.
func (g *Glob) Covers(o *Glob) bool {
	stars, others := 0, 0
	for _, t := range g.Tokens {
		switch t.Kind {
		case Star:
			stars++
		case Any, InClass:
			others++
		case Literal:
		}
	}
	return stars == 1 && others == 0 && o.Least >= g.Least &&
		strings.HasPrefix(o.Prefix, g.Prefix) && strings.HasSuffix(o.Suffix, g.Suffix)
}

// fresh is a character that no glob is likely to spell out.
const fresh = "\x01"

// Example returns a name that g probably matches: check it with Match.
func (g *Glob) Example() string {
	var b strings.Builder
	for _, t := range g.Tokens {
		switch t.Kind {
		case Literal:
			b.WriteString(t.Literal)
		case Any:
			b.WriteString(fresh)
		case InClass:
			b.WriteRune(t.Class.example())
		case Star:
		}
	}
	return b.String()
}

// example returns a character in the class, if it is not too odd a class.
func (c *Class) example() rune {
	if !c.Negated {
		return c.Ranges[0].Low
	}
	r := '\x01'
	for r == '/' || c.Holds(r) {
		r++
	}
	return r
}
