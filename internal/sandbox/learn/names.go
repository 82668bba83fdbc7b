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

// randomGlob returns a glob for the name of an entry that the command made, with its random parts
// replaced. It is false if the name has none, or nothing else that tells it from others.
func randomGlob(n *node) (string, bool) {
	if n.use.Kind&uses.Created == 0 {
		return "", false
	}
	gone := n.use.Kind&uses.Removed != 0
	var b strings.Builder
	random, fixed := false, 0
	for rest := n.path.Base(); rest != ""; {
		i := strings.IndexAny(rest, separators)
		part, separator := rest, ""
		if i >= 0 {
			part, separator = rest[:i], rest[i:i+1]
		}
		rest = rest[len(part)+len(separator):]
		prefix := ""
		if gone {
			prefix = temporaryPrefix(part)
		}
		if word := part[len(prefix):]; isNumber(word) || isHash(word) || gone && isRandom(word) {
			random, fixed = true, fixed+len(prefix)
			b.WriteString(prefix)
			if !strings.HasSuffix(b.String(), "*") {
				b.WriteByte('*')
			}
		} else {
			if rest != "" || separator == "" && fixed == 0 && random { // an extension alone tells too little
				fixed += len(part)
			}
			b.WriteString(escapeGlob(part))
		}
		b.WriteString(escapeGlob(separator))
	}
	return b.String(), random && fixed >= agree
}

// separators divide a name into words.
const separators = ".-~#@+ "

// temporaryPrefix returns what a name begins with if mktemp(1) or Python's tempfile has made it
// without a separator.
func temporaryPrefix(part string) string {
	for _, prefix := range []string{"tmp", "temp"} {
		if strings.HasPrefix(part, prefix) && len(part) > len(prefix)+5 {
			return prefix
		}
	}
	return ""
}

// isNumber reports whether a word is a number that is probably different in the next run: of a
// process, or a time.
func isNumber(s string) bool { return len(s) >= 4 && strings.Trim(s, "0123456789") == "" }

// isHash reports whether a word is a number to the base of 16 that means nothing to people.
func isHash(s string) bool {
	return len(s) >= 8 && strings.Trim(s, "0123456789abcdef") == "" && strings.ContainsAny(s, "0123456789") && strings.ContainsAny(s, "abcdef")
}

// isRandom reports whether a word mixes letters with digits, or small with large letters, as
// names of temporary files do.
func isRandom(s string) bool {
	var digits, upper, changes int
	last := byte(0)
	for _, c := range []byte(s) {
		class := byte('l')
		switch {
		case c >= '0' && c <= '9':
			digits++
			class = 'd'
		case c >= 'A' && c <= 'Z':
			upper++
			class = 'u'
		case c >= 'a' && c <= 'z', c == '_':
		default:
			return false
		}
		if class != last && last != 0 {
			changes++
		}
		last = class
	}
	return len(s) >= 6 && (digits >= 2 || digits+upper > 0 && changes >= 3)
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
