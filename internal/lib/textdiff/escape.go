package textdiff

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// QuoteName returns a file name as git writes it in a patch: as it is, or
// between double quotes with C escapes and octal bytes where it holds a
// quote, a backslash, a control character, broken UTF-8 or a rune that does
// not print as itself (git's quote_c_style with core.quotePath off, and
// stricter). git apply reads both.
func QuoteName(name string) string {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(name); {
		r, size := utf8.DecodeRuneInString(name[i:])
		piece := name[i : i+size]
		i += size
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + piece)
			quoted = true
		case r == ' ' || isVisible(r):
			b.WriteString(piece)
		default:
			for _, c := range []byte(piece) {
				b.WriteString(quoteByte(c))
			}
			quoted = true
		}
	}
	if !quoted {
		return name
	}
	return `"` + b.String() + `"`
}

func quoteByte(c byte) string {
	if i := strings.IndexByte("\a\b\t\n\v\f\r", c); i >= 0 {
		return `\` + string("abtnvfr"[i])
	}
	return fmt.Sprintf(`\%03o`, c)
}

// Escape returns one line of content such that a terminal shows it as it is:
// control characters except tab and the final newline, broken UTF-8,
// bidirectional controls and runes without a glyph become \xNN or \u{N}. It
// reports whether it changed anything. Backslashes stay, so this is for
// people, not for a way back.
func Escape(line string) (string, bool) {
	if isHarmless(line) {
		return line, false
	}
	var b strings.Builder
	text, hasNewline := strings.CutSuffix(line, "\n")
	changed := false
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		piece := text[i : i+size]
		i += size
		switch {
		case r == '\t' || unicode.Is(unicode.Zs, r) || isVisible(r):
			b.WriteString(piece)
			continue
		case unicode.IsControl(r) || r == utf8.RuneError:
			for _, c := range []byte(piece) {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
		default:
			fmt.Fprintf(&b, `\u{%x}`, r)
		}
		changed = true
	}
	if hasNewline {
		b.WriteByte('\n')
	}
	return b.String(), changed
}

// isHarmless is the quick answer for the common line.
func isHarmless(line string) bool {
	for i := range len(line) {
		c := line[i]
		if (c < 0x20 && c != '\t' && (c != '\n' || i != len(line)-1)) || c >= 0x7f {
			return false
		}
	}
	return true
}

func isVisible(r rune) bool { return unicode.IsPrint(r) && r != utf8.RuneError }

// EscapeHunks returns the hunks with each line escaped, and whether that
// changed any: then they are no patch any more. A carriage return before a
// newline stays where every line of the hunks has one, because it only says
// that the file is in DOS form; elsewhere it is what the change is about.
func EscapeHunks(hunks []Hunk) ([]Hunk, bool) {
	dos := allDOS(hunks)
	changed := false
	shown := make([]Hunk, len(hunks))
	for i, h := range hunks {
		shown[i] = h
		shown[i].Lines = make([]Line, len(h.Lines))
		for j, l := range h.Lines {
			text, isDOS := l.Text, false
			if dos {
				text, isDOS = strings.CutSuffix(text, "\r\n")
			}
			text, altered := Escape(text)
			changed = changed || altered
			if isDOS {
				text += "\r\n"
			}
			shown[i].Lines[j] = Line{Op: l.Op, Text: text}
		}
	}
	return shown, changed
}

func allDOS(hunks []Hunk) bool {
	for _, h := range hunks {
		for _, l := range h.Lines {
			if strings.HasSuffix(l.Text, "\n") && !strings.HasSuffix(l.Text, "\r\n") {
				return false
			}
		}
	}
	return true
}
