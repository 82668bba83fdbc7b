package vpath

import (
	"testing"
	"unicode/utf8"
)

func TestTextOfNames(t *testing.T) {
	for _, c := range []struct{ name, bytes, text string }{
		{"a plain name stays", "a/b.go", "a/b.go"},
		{"a line feed stays", "a\nb", "a\nb"},
		{"a backslash stays", `a\b`, `a\b`},
		{"a Windows path stays", `C:\x\new`, `C:\x\new`},
		{"other characters stay", "größe-日本", "größe-日本"},
		{"a byte that is no UTF-8 is escaped", "a\xff", `a\xff`},
		{"what spells an escape is escaped", `a\xff`, `a\x5cxff`},
		{"what spells the escape of a backslash too", `\x5c`, `\x5cx5c`},
		{"a backslash before a broken byte stays", "\\\xff", `\\xff`},
		{"half a character", "\xc3", `\xc3`},
	} {
		if got := EncodeText(c.bytes); got != c.text {
			t.Errorf("%s: EncodeText(%q) = %q, want %q", c.name, c.bytes, got, c.text)
		}
		if got := DecodeText(c.text); got != c.bytes {
			t.Errorf("%s: DecodeText(%q) = %q, want %q", c.name, c.text, got, c.bytes)
		}
	}
}

func TestParseTextCannotSpellMoreThanBytes(t *testing.T) {
	for _, text := range []string{`\x00`, `a\x2fb`, `\x2e\x2e`} {
		p, err := ParseText(text)
		if err != nil || string(p) != "/"+text {
			t.Errorf("ParseText(%q) = %q, %v; want the letters themselves", text, string(p), err)
		}
	}
	if p, err := ParseText("/"); err != nil || p != Root || p.Text() != "" {
		t.Errorf("the root: %q, %v", p.Text(), err)
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"", "a", `\x5c`, `\x\xff`, "\\\xff", "\xff\xfe", `\\x80`, "\xc3\\xa9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text := EncodeText(s)
		if !utf8.ValidString(text) {
			t.Errorf("EncodeText(%q) = %q is no UTF-8", s, text)
		}
		if back := DecodeText(text); back != s {
			t.Errorf("%q became %q by way of %q", s, back, text)
		}
	})
}
