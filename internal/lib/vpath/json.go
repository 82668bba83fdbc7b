package vpath

import (
	"bytes"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// EscapeJSON returns the JSON text such that a terminal shows it as it is and
// any JSON reader takes it for the same: runes that do not print as themselves,
// bidirectional controls and zero-width runes among them, become \uNNNN. text
// must be valid, so that they stand in strings only.
func EscapeJSON(text []byte) []byte {
	if !bytes.ContainsFunc(text, isHiddenInJSON) {
		return text
	}
	b := make([]byte, 0, len(text)+len(text)/8)
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		switch high, low := utf16.EncodeRune(r); {
		case !isHiddenInJSON(r):
			b = append(b, text[i:i+size]...)
		case r > 0xffff:
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
		i += size
	}
	return b
}

// isHiddenInJSON leaves the white space between JSON's tokens alone; in a
// string no control character below 0x20 stands.
func isHiddenInJSON(r rune) bool { return r >= 0x20 && !isVisible(r) }
