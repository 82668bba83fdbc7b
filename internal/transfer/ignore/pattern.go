package ignore

import (
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// pattern is one line, compiled. What it matches begins with prefix; the rest
// is the wild part's.
type pattern struct {
	negated  bool // begins with "!"
	dirOnly  bool // ends with "/"
	anchored bool // holds another slash: about the path, else about the name
	prefix   string
	wild     wild     // nil: the prefix is all
	runs     []string // each text that wild takes holds these, one after another
	suffix   bool     // of a name: "*" and then prefix, which is the end
}

// isName reports whether p matches one name and no other.
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

// holdsInOrder is quick, and refuses most of what a pattern does not match.
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

// special are the characters that end the literal beginning of a pattern.
const special = `*?[\`

// parseLine reads a line; ok is false if it holds no pattern.
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

// trimSpaces drops the spaces at the end that no backslash protects. A line
// that ends in a lone backslash stays as it is.
func trimSpaces(s string) string {
	end := 0 // behind the last byte that is to stay
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
