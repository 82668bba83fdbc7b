package gitconfig

import (
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// variable is one assignment of a file: its section and name in lower case, the
// subsection as it is.
type variable struct {
	section, sub, name string
	value              string
}

// parser reads one file as git does (git-config(1), "Syntax").
type parser struct {
	rest         string
	section, sub string
}

var errSyntax = errdefs.New(errdefs.Invalid, "git configuration: not in git's syntax")

// parse returns the assignments of a file in order. Errors: Invalid.
func parse(text string) ([]variable, error) {
	p := parser{rest: strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\r\n", "\n")}
	var all []variable
	for {
		p.rest = strings.TrimLeft(p.rest, " \t\n")
		switch {
		case p.rest == "":
			return all, nil
		case p.rest[0] == '#' || p.rest[0] == ';':
			p.skipLine()
		case p.rest[0] == '[':
			if !p.header() {
				return nil, errSyntax
			}
		default:
			v, ok := p.assignment()
			if !ok {
				return nil, errSyntax
			}
			all = append(all, v)
		}
	}
}

func (p *parser) skipLine() {
	_, p.rest, _ = strings.Cut(p.rest, "\n")
}

// header reads [section], [section "sub"] or the old [section.sub].
func (p *parser) header() bool {
	n := nameLength(p.rest[1:], "-.")
	name, rest := p.rest[1:1+n], p.rest[1+n:]
	p.section, p.sub, _ = strings.Cut(strings.ToLower(name), ".")
	if strings.HasPrefix(rest, "]") {
		p.rest = rest[1:]
		return n > 0
	}
	rest = strings.TrimLeft(rest, " \t")
	if n == 0 || !strings.HasPrefix(rest, `"`) {
		return false
	}
	var sub strings.Builder
	for i := 1; i < len(rest) && rest[i] != '\n'; i++ {
		switch rest[i] {
		case '"':
			p.sub = sub.String()
			p.rest = rest[i+1:]
			found := strings.HasPrefix(p.rest, "]")
			p.rest = strings.TrimPrefix(p.rest, "]")
			return found
		case '\\':
			if i++; i == len(rest) {
				return false
			}
		}
		sub.WriteByte(rest[i])
	}
	return false
}

func nameLength(s, also string) int {
	n := 0
	for n < len(s) && (isAlnum(s[n]) || strings.IndexByte(also, s[n]) >= 0) {
		n++
	}
	return n
}

func isAlnum(b byte) bool {
	return 'a' <= b|0x20 && b|0x20 <= 'z' || '0' <= b && b <= '9'
}

// assignment reads name = value; a name alone is true.
func (p *parser) assignment() (variable, bool) {
	n := nameLength(p.rest, "-")
	v := variable{section: p.section, sub: p.sub, name: strings.ToLower(p.rest[:n]), value: "true"}
	if n == 0 || p.section == "" {
		return v, false
	}
	p.rest = strings.TrimLeft(p.rest[n:], " \t")
	switch {
	case strings.HasPrefix(p.rest, "="):
		p.rest = strings.TrimLeft(p.rest[1:], " \t")
		var ok bool
		v.value, ok = p.value()
		return v, ok
	case p.rest == "" || strings.IndexByte("\n#;", p.rest[0]) >= 0:
		return v, true
	}
	return v, false
}

// escapes are what a backslash may stand before in a value.
var escapes = map[byte]byte{'n': '\n', 't': '\t', 'b': '\b', '"': '"', '\\': '\\'}

// value reads to the end of the line, or of the lines that a backslash joins.
func (p *parser) value() (string, bool) {
	var value strings.Builder
	quoted, end := false, 0 // end is behind what counts if only space follows
	for p.rest != "" {
		b := p.rest[0]
		if b == '\n' || !quoted && (b == '#' || b == ';') {
			break
		}
		p.rest = p.rest[1:]
		switch {
		case b == '"':
			quoted = !quoted
			end = value.Len()
			continue
		case b == '\\':
			if p.rest == "" {
				return "", false
			}
			b, p.rest = p.rest[0], p.rest[1:]
			if b == '\n' {
				continue
			}
			plain, ok := escapes[b]
			if !ok {
				return "", false
			}
			value.WriteByte(plain)
			end = value.Len()
			continue
		}
		value.WriteByte(b)
		if quoted || b != ' ' && b != '\t' {
			end = value.Len()
		}
	}
	return value.String()[:end], !quoted
}
