package vpath

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// EncodeText returns s as valid UTF-8, for messages that hold nothing else; DecodeText restores the
// exact bytes. Valid UTF-8 does not change, including line feeds and backslashes, so ordinary names
// stay as they are. A byte that is not valid UTF-8 becomes `\xNN`, NN from 80 to ff in lower case.
// If s itself contains such an escape or `\x5c`, the backslash becomes `\x5c`.
func EncodeText(s string) string {
	if utf8.ValidString(s) && !strings.Contains(s, `\x`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		_, spells := textEscape(s[i:])
		switch {
		case spells:
			b.WriteString(`\x5c`)
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		default:
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}

// DecodeText reverses EncodeText. It does not change any other backslash.
func DecodeText(s string) string {
	if !strings.Contains(s, `\x`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if c, is := textEscape(s[i:]); is {
			b.WriteByte(c)
			i += len(`\xNN`)
			continue
		}
		b.WriteByte(s[i])
		i++
	}
	return b.String()
}

// textEscape decodes an escape at the beginning of s.
func textEscape(s string) (byte, bool) {
	const digits = "0123456789abcdef"
	if len(s) < len(`\xNN`) || s[:2] != `\x` {
		return 0, false
	}
	high, low := strings.IndexByte(digits, s[2]), strings.IndexByte(digits, s[3])
	c := byte(high<<4 | low)
	return c, high >= 0 && low >= 0 && (c >= utf8.RuneSelf || c == '\\')
}

// ParseText is Parse for a path of a message, see EncodeText.
func ParseText(s string) (Path, error) { return Parse(DecodeText(s)) }

// ErrEmpty refuses an empty path where paths select changes: an unset variable leaves one, and as
// the root it would select all.
var ErrEmpty = errdefs.New(errdefs.Invalid, `empty path: leave it out, or give "/", for all paths`)

// ParseSelected is ParseText of a path that selects what is at and below it. Errors: Invalid;
// ErrEmpty.
func ParseSelected(s string) (Path, error) {
	if s == "" {
		return "", ErrEmpty
	}
	return ParseText(s)
}

// Text returns p as a program sees it, for messages: without a leading slash, "" for the root.
// ParseText reads it.
func (p Path) Text() string { return EncodeText(strings.TrimPrefix(string(p.Plain()), "/")) }
