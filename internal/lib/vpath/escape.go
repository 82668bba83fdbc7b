package vpath

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Escape returns s such that a terminal or a line-based log shows it on one
// line and cannot be deceived by it, and Unescape gives s back to the byte: a
// backslash becomes `\\`; a byte that is not valid UTF-8 and a control
// character becomes `\xNN` (each byte of it); any other rune that does not
// print as itself, bidirectional controls and zero-width runes among them,
// becomes `\u{N}`.
func Escape(s string) string {
	if isPlain(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\\':
			b.WriteString(`\\`)
		case r == utf8.RuneError && size == 1, unicode.IsControl(r):
			for _, c := range []byte(s[i : i+size]) {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
		case !isVisible(r):
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}

// EscapeMessage returns a text in which names may be escaped already, such that a terminal
// cannot be deceived by it: as Escape, but a backslash stays.
func EscapeMessage(text string) string {
	return strings.ReplaceAll(Escape(text), `\\`, `\`)
}

// Quote is Escape between double quotes, with a double quote inside escaped
// too: for messages, where a path's end must be visible.
func Quote(s string) string {
	return `"` + strings.ReplaceAll(Escape(s), `"`, `\x22`) + `"`
}

func isPlain(s string) bool {
	for _, c := range []byte(s) {
		if c < 0x20 || c >= 0x7f || c == '\\' {
			return false
		}
	}
	return true
}

// isVisible leaves out U+FFFD too: shown raw it could not be told from what a
// terminal prints for broken bytes.
func isVisible(r rune) bool {
	return unicode.IsPrint(r) && r != utf8.RuneError
}

// Unescape reverses Escape. Errors: Invalid for an escape Escape never writes.
func Unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			i++
			continue
		}
		n, text, err := unescapeOne(s[i:])
		if err != nil {
			return "", err
		}
		b.WriteString(text)
		i += n
	}
	return b.String(), nil
}

// unescapeOne decodes the escape that s starts with and returns its length.
func unescapeOne(s string) (int, string, error) {
	switch {
	case strings.HasPrefix(s, `\\`):
		return 2, `\`, nil
	case strings.HasPrefix(s, `\x`) && len(s) >= 4:
		c, err := strconv.ParseUint(s[2:4], 16, 8)
		if err != nil {
			return 0, "", badEscape(s)
		}
		return 4, string([]byte{byte(c)}), nil
	case strings.HasPrefix(s, `\u{`):
		end := strings.IndexByte(s[:min(len(s), maxEscape)], '}')
		if end < 0 {
			return 0, "", badEscape(s)
		}
		r, err := strconv.ParseUint(s[3:end], 16, 21)
		if err != nil || !utf8.ValidRune(rune(r)) {
			return 0, "", badEscape(s)
		}
		return end + 1, string(rune(r)), nil
	}
	return 0, "", badEscape(s)
}

// maxEscape is the length of the longest escape, `\u{10ffff}`.
const maxEscape = 10

func badEscape(s string) error {
	return errdefs.New(errdefs.Invalid, "malformed escape at %q", s[:min(len(s), maxEscape)])
}
