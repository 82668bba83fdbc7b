package redact

import (
	"bytes"
	"errors"
	"strings"
)

// errEnv says only that a line is not certain to be an assignment. Shells, docker and the
// dotenv libraries read some lines in different ways.
var errEnv = errors.New("the file is not a list of NAME=value lines with one reading")

// Env masks a file of NAME=value lines, as shells, docker and the dotenv libraries read it.
// A value may be in quotes and then have several lines, and a line may end with a backslash to
// go on in the next. Where those programs would disagree on where a value ends, Env returns an
// error: a part of a value could be taken for a name.
func Env(content []byte) ([]byte, error) {
	if len(content) > MaxBytes {
		return nil, errTooLarge
	}
	if bytes.IndexByte(content, 0) >= 0 {
		return nil, errText
	}
	s := envScanner{rest: string(trimMark(content))}
	for s.rest != "" {
		if err := s.line(); err != nil {
			return nil, err
		}
	}
	return s.out.Bytes(), nil
}

type envScanner struct {
	rest string
	out  bounded
}

// line reads one assignment, or a line without one.
func (s *envScanner) line() error {
	s.rest = strings.TrimLeft(s.rest, " \t")
	if end := endOfLine(s.rest); s.rest == "" || end == 0 || s.rest[0] == '#' {
		s.skip(end)
		return nil
	}
	export := ""
	if after, ok := strings.CutPrefix(s.rest, "export"); ok && after != strings.TrimLeft(after, " \t") {
		export, s.rest = "export ", strings.TrimLeft(after, " \t")
	}
	name := s.rest[:nameLength(s.rest)]
	s.rest = strings.TrimLeft(s.rest[len(name):], " \t")
	if name == "" || !strings.HasPrefix(s.rest, "=") {
		return errEnv
	}
	s.rest = s.rest[1:]
	if err := s.value(); err != nil {
		return err
	}
	return s.out.text(export + name + "=" + maskText + "\n")
}

// nameLength returns how many bytes of s are a name.
func nameLength(s string) int {
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c != '.' && c != '-' && (c < '0' || c > '9')) {
			return i
		}
	}
	return len(s)
}

// endOfLine returns the length of the first line, without its end.
func endOfLine(s string) int {
	i := strings.IndexByte(s, '\n')
	switch {
	case i < 0:
		return len(s)
	case i > 0 && s[i-1] == '\r':
		return i - 1
	}
	return i
}

// skip removes n bytes and the end of the line.
func (s *envScanner) skip(n int) {
	s.rest = strings.TrimPrefix(strings.TrimPrefix(s.rest[n:], "\r"), "\n")
}

// value removes a value and the end of its line.
func (s *envScanner) value() error {
	if text := strings.TrimLeft(s.rest, " \t"); text != "" && strings.IndexByte(quotes, text[0]) >= 0 {
		length, err := quoted(text)
		if err != nil {
			return err
		}
		s.rest = text[length:]
	}
	return s.plain()
}

const quotes = "\"'`"

// quoted returns the length of the text in quotes with which s begins.
func quoted(s string) (int, error) {
	quote := s[0]
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\':
			// One backslash before the quote: within " all take the quote as escaped, within
			// the others only some do. Two: some take the second one as escaped.
			run := len(s[i:]) - len(strings.TrimLeft(s[i:], "\\"))
			i += run - 1
			if next := i + 1; next < len(s) && s[next] == quote {
				if quote != '"' || run > 1 {
					return 0, errEnv
				}
				i = next
			}
		case c == quote:
			if quote == '"' && !closesBraces(s[:i]) {
				return 0, errEnv
			}
			return i + 1, nil
		case quote == '"' && (c == '`' || c == '$' && strings.HasPrefix(s[i:], "$(")):
			return 0, errEnv // quotes in a command count for a shell, and for nothing else
		}
	}
	return 0, errEnv
}

// plain removes the rest of a value, which is not in quotes, and the end of its line.
func (s *envScanner) plain() error {
	for {
		end := endOfLine(s.rest)
		text := beforeComment(s.rest[:end])
		switch {
		case !closed(text), !closesBraces(text),
			strings.Contains(text, "<<"),
			strings.Count(text, "(") != strings.Count(text, ")"):
			return errEnv
		}
		s.skip(end)
		if run := len(text) - len(strings.TrimRight(text, "\\")); run%2 == 0 {
			return nil
		}
	}
}

// beforeComment removes a comment, which begins with # after a space. It does not look behind
// a quote, where a # may belong to the value.
func beforeComment(line string) string {
	for i := range len(line) {
		switch line[i] {
		case '"', '\'', '`':
			return line
		case '#':
			if i > 0 && (line[i-1] == ' ' || line[i-1] == '\t') {
				return line[:i]
			}
		}
	}
	return line
}

// closesBraces reports whether each ${ of a text is closed in it. Else the value goes on for a
// shell, also behind the end of the line and the quote.
func closesBraces(text string) bool {
	open := 0
	for i := range len(text) {
		switch {
		case strings.HasPrefix(text[i:], "${"):
			open++
		case text[i] == '}' && open > 0:
			open--
		}
	}
	return open == 0
}

// closed reports whether each quote of a line is closed in it, for whoever takes quotes in the
// middle of a value for quotes.
func closed(line string) bool {
	for line != "" {
		i := strings.IndexAny(line, quotes)
		if i < 0 {
			return true
		}
		if strings.HasSuffix(line[:i], "\\") {
			return false
		}
		length, err := quoted(line[i:])
		if err != nil {
			return false
		}
		line = line[i+length:]
	}
	return true
}
