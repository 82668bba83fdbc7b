package secret

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// A pattern is a value in one encoding: the forms that each character may have, the longer before
// the shorter.
type pattern [][]string

// patternsOf are those of a value: as it is; with any of its characters escaped as URLs, JSON,
// JavaScript or HTML have it; in hexadecimal; and in base64 at every offset.
func patternsOf(value string) []pattern {
	digits := hex.EncodeToString([]byte(value))
	patterns := []pattern{fixed(value), escaped(value), fixed(digits), fixed(strings.ToUpper(digits))}
	for before := range 3 {
		patterns = append(patterns, fixed(inBase64(base64.RawStdEncoding, value, before)), fixed(inBase64(base64.RawURLEncoding, value, before)))
	}
	return patterns
}

// fixed has one form of each character.
func fixed(text string) pattern {
	p := make(pattern, len(text))
	for i := range p {
		p[i] = []string{text[i : i+1]}
	}
	return p
}

// escaped has every form of each character.
func escaped(text string) pattern {
	p := make(pattern, len(text))
	for i := range p {
		p[i] = escapes(text[i])
	}
	return p
}

// named are the escapes of characters that have further ones.
var named = map[byte][]string{
	'/': {`\/`}, '"': {`\"`, "&quot;"}, '\'': {`\'`, "&apos;"}, '\\': {`\\`}, '&': {"&amp;"}, '<': {"&lt;"}, '>': {"&gt;"},
}

// escapes returns the forms of a character.
func escapes(c byte) []string {
	forms := slices.Clone(named[c])
	for _, format := range []string{"%c", "%%%02X", "%%%02x", `\u%04X`, `\u%04x`, `\x%02X`, `\x%02x`, "&#%d;", "&#x%X;", "&#x%x;"} {
		forms = append(forms, fmt.Sprintf(format, c))
	}
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	return forms
}

// inBase64 returns the characters that a value alone decides, with so many bytes before it.
func inBase64(encoding *base64.Encoding, value string, before int) string {
	text := encoding.EncodeToString(append(make([]byte, before), value...))
	return text[(8*before+5)/6 : 8*(before+len(value))/6]
}

// match returns how many bytes at the beginning of b are the value, 0 if it is not there. open says
// that b ends before that is decided.
func (p pattern) match(b []byte) (n int, open bool) {
	for _, forms := range p {
		size, undecided := first(forms, b[n:])
		if undecided {
			return 0, true
		}
		if size == 0 {
			return 0, false
		}
		n += size
	}
	return n, false
}

// first returns how long the form is that b begins with, 0 for none. undecided says that b is the
// beginning of a form.
func first(forms []string, b []byte) (size int, undecided bool) {
	for _, form := range forms {
		if len(form) <= len(b) && string(b[:len(form)]) == form {
			return len(form), false
		}
		if len(form) > len(b) && form[:len(b)] == string(b) {
			return 0, true
		}
	}
	return 0, false
}

// starts are the bytes with which a match begins.
func (p pattern) starts() map[byte]bool {
	starts := map[byte]bool{}
	for _, form := range p[0] {
		starts[form[0]] = true
	}
	return starts
}

// longest returns the most bytes that a match has.
func (p pattern) longest() int {
	n := 0
	for _, forms := range p {
		n += len(forms[0])
	}
	return n
}
