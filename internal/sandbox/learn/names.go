package learn

import (
	"strings"
	"unicode/utf8"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy/glob"
	"github.com/agentfense/agentfense/internal/view/uses"
)

const maxExtension = 12 // bytes

// extensionOf returns the extension of a name with its dot, "" if it has none that is a word.
func extensionOf(name string) string {
	i := strings.LastIndexByte(name, '.')
	if i <= 0 || len(name)-i > maxExtension || i == len(name)-1 {
		return ""
	}
	letters := 0
	for _, c := range []byte(name[i+1:]) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
			letters++
		case c >= '0' && c <= '9', c == '_':
		default:
			return ""
		}
	}
	if letters == 0 {
		return ""
	}
	return name[i:]
}

// temporaryGlob returns a glob for the name of a file that the command made and removed again,
// with its random parts replaced. It is false if the name has none, or nothing else.
func temporaryGlob(n *node) (string, bool) {
	if n.use.Kind&(uses.Created|uses.Removed) != uses.Created|uses.Removed || n.use.Dir {
		return "", false
	}
	var b strings.Builder
	random, fixed := false, 0
	for rest := n.path.Base(); rest != ""; {
		i := strings.IndexAny(rest, ".-_~#@+ ")
		part, separator := rest, ""
		if i >= 0 {
			part, separator = rest[:i], rest[i:i+1]
		}
		rest = rest[len(part)+len(separator):]
		if isRandomWord(part) {
			random = true
			if !strings.HasSuffix(b.String(), "*") {
				b.WriteByte('*')
			}
		} else {
			fixed += len(part)
			b.WriteString(escapeGlob(part))
		}
		b.WriteString(escapeGlob(separator))
	}
	return b.String(), random && fixed >= agree
}

// isRandomWord reports whether a part of a name is probably different in the next run: a number
// of four digits and more, or letters mixed with digits or other case.
func isRandomWord(s string) bool {
	var digits, lower, upper, changes int
	last := byte(0)
	for _, c := range []byte(s) {
		class := byte('o')
		switch {
		case c >= '0' && c <= '9':
			digits++
			class = 'd'
		case c >= 'a' && c <= 'z':
			lower++
			class = 'l'
		case c >= 'A' && c <= 'Z':
			upper++
			class = 'u'
		}
		if class != last && last != 0 {
			changes++
		}
		last = class
	}
	switch {
	case digits == len(s):
		return len(s) >= 4
	case digits+lower+upper != len(s) || len(s) < 6:
		return false
	}
	return digits >= 2 || digits+upper > 0 && changes >= 3
}

// matchesNothing reports whether the source has no name in the directory that the glob matches.
func (l *learner) matchesNothing(dir vpath.Path, text string) bool {
	tokens, err := glob.Parse(text)
	if err != nil {
		return false
	}
	g := glob.New(text, tokens)
	for _, e := range l.list(dir) {
		if g.Match(e.Name) {
			return false
		}
	}
	return true
}

// escapeGlob writes text as a glob that matches it. Bytes that are not UTF-8, which no policy
// file can hold, become ?.
func escapeGlob(text string) string {
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)):
			b.WriteByte('?')
		case strings.ContainsRune(`*?[]{},\!`, r):
			b.WriteByte('\\')
			b.WriteRune(r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// escapePath is escapeGlob for a path.
func escapePath(p vpath.Path) string { return escapeGlob(string(p)) }
