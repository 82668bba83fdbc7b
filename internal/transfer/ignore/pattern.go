package ignore

import (
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// pattern is one compiled line: a literal prefix and a part with wildcards.
type pattern struct {
	negated  bool // begins with "!"
	dirOnly  bool // ends with "/"
	anchored bool // contains another slash: matches the path, otherwise the name
	prefix   string
	wild     wild     // nil: only the prefix
	runs     []string // each text that wild matches contains these, in this order
	suffix   bool     // the pattern is "*" and then prefix: the end of a name
}

// isName reports whether p matches exactly one name.
func (p *pattern) isName() bool { return !p.anchored && !p.suffix && p.wild == nil }

func (p *pattern) matches(path vpath.Path, name string) bool {
	if p.suffix {
		return strings.HasSuffix(name, p.prefix)
	}
	text := name
	if p.anchored {
		text = path.Rel()
	}
	rest, ok := strings.CutPrefix(text, p.prefix)
	if !ok {
		return false
	}
	if p.wild == nil {
		return rest == ""
	}
	return holdsInOrder(rest, p.runs) && p.wild.match(rest)
}

// holdsInOrder is a fast check that refuses most texts that do not match.
func holdsInOrder(text string, runs []string) bool {
	for _, run := range runs {
		_, rest, found := strings.Cut(text, run)
		if !found {
			return false
		}
		text = rest
	}
	return true
}

// special are the characters that end the literal prefix of a pattern.
const special = `*?[\`

// parseLine reads a line; ok is false if it has no pattern.
func parseLine(line string) (p pattern, ok bool) {
	line = strings.TrimSuffix(line, "\r")
	line, _, _ = strings.Cut(line, "\x00")
	if strings.HasPrefix(line, "#") {
		return p, false
	}
	line = trimSpaces(line)
	line, p.negated = strings.CutPrefix(line, "!")
	line, p.dirOnly = strings.CutSuffix(line, "/")
	p.anchored = strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if line == "" {
		return p, false
	}
	p.prefix = line
	if cut := strings.IndexAny(line, special); cut >= 0 {
		p.prefix = line[:cut]
		p.compile(line[cut:])
	}
	return p, true
}

func (p *pattern) compile(rest string) {
	if !p.anchored && p.prefix == "" && rest[0] == '*' && !strings.ContainsAny(rest[1:], special) {
		p.suffix, p.prefix = true, rest[1:]
		return
	}
	p.wild = compileWild(rest, p.anchored)
	p.runs = p.wild.runs()
}

// trimSpaces removes trailing spaces without a backslash. It does not change a line that ends with
// a backslash.
func trimSpaces(s string) string {
	end := 0 // after the last byte that stays
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case ' ':
			continue
		case '\\':
			if i++; i == len(s) {
				return s
			}
		}
		end = i + 1
	}
	return s[:end]
}
