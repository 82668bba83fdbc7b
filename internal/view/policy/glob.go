package policy

import (
	"strings"
	"unicode/utf8"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// glob is one element of a pattern that holds a wildcard other than a lone *.
// It matches names without a slash; literals compare byte by byte, ? and […]
// take one character, or one byte where the name is not valid UTF-8.
type glob struct {
	tokens []token
	least  int    // no shorter name matches, in bytes
	prefix string // every matching name begins with it
	suffix string // every matching name ends with it
	need   uint64 // byteMask bits that every matching name has
}

type tokenKind uint8

const (
	tokenLiteral tokenKind = iota
	tokenStar
	tokenAny
	tokenClass
)

type token struct {
	kind    tokenKind
	literal string
	class   *class
}

// class is a character class. Broken UTF-8 is in no range, so a byte of it is
// matched by a negated class only.
type class struct {
	negated bool
	ranges  []runeRange
}

type runeRange struct{ low, high rune }

// newGlob takes tokens of which at least one is no literal.
func newGlob(tokens []token) *glob {
	g := &glob{tokens: tokens}
	for _, t := range tokens {
		switch t.kind {
		case tokenLiteral:
			g.least += len(t.literal)
			g.need |= byteMask(t.literal)
		case tokenAny, tokenClass:
			g.least++
		case tokenStar:
		}
	}
	g.prefix = tokens[0].literal
	g.suffix = tokens[len(tokens)-1].literal
	return g
}

// byteMask has a bit for each byte of s; two bytes may share one.
func byteMask(s string) uint64 {
	var mask uint64
	for i := range len(s) {
		mask |= 1 << (s[i] & 63)
	}
	return mask
}

// match takes at most len(name) × len(tokens) steps: only the last star met
// is ever tried again.
func (g *glob) match(name string) bool {
	if len(name) < g.least || !strings.HasPrefix(name, g.prefix) || !strings.HasSuffix(name, g.suffix) {
		return false
	}
	t, n := 0, 0
	star, starAt := -1, 0
	for t < len(g.tokens) || n < len(name) {
		if t < len(g.tokens) {
			if g.tokens[t].kind == tokenStar {
				star, starAt = t, n
				t++
				continue
			}
			if size := g.tokens[t].take(name[n:]); size > 0 {
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

// stride is how far the star at index i moves on: a byte before a literal, so
// that literals need not begin where a character does, else a character, so
// that ? and […] never see a part of one.
func (g *glob) stride(i int, rest string) int {
	if i+1 < len(g.tokens) && g.tokens[i+1].kind == tokenLiteral {
		return 1
	}
	_, size := utf8.DecodeRuneInString(rest)
	return size
}

// take returns how many bytes of s the token matches at its beginning, 0 if it
// does not match.
func (t *token) take(s string) int {
	if t.kind == tokenLiteral {
		if strings.HasPrefix(s, t.literal) {
			return len(t.literal)
		}
		return 0
	}
	r, size := utf8.DecodeRuneInString(s)
	if t.kind == tokenAny || size == 0 {
		return size
	}
	broken := r == utf8.RuneError && size == 1
	if (!broken && t.class.holds(r)) != t.class.negated {
		return size
	}
	return 0
}

func (c *class) holds(r rune) bool {
	for _, q := range c.ranges {
		if q.low <= r && r <= q.high {
			return true
		}
	}
	return false
}

// parseTokens reads one element of a glob; braces are expanded already. The
// literals between wildcards are joined and unescaped, neighbouring stars are
// one.
func parseTokens(s string) ([]token, error) {
	var tokens []token
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			tokens = append(tokens, token{kind: tokenLiteral, literal: literal.String()})
			literal.Reset()
		}
	}
	for i := 0; i < len(s); {
		switch s[i] {
		case '*':
			flush()
			if len(tokens) == 0 || tokens[len(tokens)-1].kind != tokenStar {
				tokens = append(tokens, token{kind: tokenStar})
			}
			i++
		case '?':
			flush()
			tokens = append(tokens, token{kind: tokenAny})
			i++
		case '[':
			end, err := classEnd(s, i)
			if err != nil {
				return nil, err
			}
			c, err := parseClass(s[i+1 : end-1])
			if err != nil {
				return nil, err
			}
			flush()
			tokens = append(tokens, token{kind: tokenClass, class: c})
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

// classEnd returns the index after the class that begins at s[i].
func classEnd(s string, i int) (int, error) {
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
func parseClass(s string) (*class, error) {
	c := new(class)
	if s != "" && (s[0] == '!' || s[0] == '^') {
		c.negated = true
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
		c.ranges = append(c.ranges, runeRange{low, high})
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
