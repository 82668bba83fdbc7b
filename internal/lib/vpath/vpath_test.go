package vpath_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name, in string
		want     vpath.Path
	}{
		{"the empty string is the root", "", "/"},
		{"a relative path starts at the root", "a/b", "/a/b"},
		{"dots and doubled slashes are dropped", "//a/./b//", "/a/b"},
		{"a space is part of a name", "/a ", "/a "},
		{"bytes need not be UTF-8", "/\xff", "/\xff"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := vpath.Parse(tt.in)
			if err != nil || got != tt.want {
				t.Errorf("Parse(%q) = %q, %v, want %q", tt.in, got, err, tt.want)
			}
		})
	}
	for _, bad := range []string{"..", "/a/../b", "a\x00b", strings.Repeat("n", 256)} {
		if _, err := vpath.Parse(bad); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("Parse(%q) error = %v, want Invalid", bad, err)
		}
	}
}

func TestWithinComparesWholeElements(t *testing.T) {
	if vpath.Path("/src-secret").Within("/src") {
		t.Error("/src-secret is within /src")
	}
	for _, p := range []vpath.Path{"/src", "/src/a", "/src/a/b"} {
		if !p.Within("/src") || !p.Within("/") {
			t.Errorf("%s is not within /src and /", p)
		}
	}
}

func TestAncestors(t *testing.T) {
	got := slices.Collect(vpath.Path("/a/b/c").Ancestors())
	if want := []vpath.Path{"/", "/a", "/a/b"}; !slices.Equal(got, want) {
		t.Errorf("Ancestors = %q, want %q", got, want)
	}
	if got := slices.Collect(vpath.Root.Ancestors()); len(got) != 0 {
		t.Errorf("Ancestors of the root = %q, want none", got)
	}
}

func TestRebase(t *testing.T) {
	tests := []struct{ p, from, to, want vpath.Path }{
		{"/a/b", "/a", "/c", "/c/b"},
		{"/a", "/a", "/c/d", "/c/d"},
		{"/a/b", "/", "/c", "/c/a/b"},
		{"/a/b", "/a", "/", "/b"},
	}
	for _, tt := range tests {
		if got := tt.p.Rebase(tt.from, tt.to); got != tt.want {
			t.Errorf("%q.Rebase(%q, %q) = %q, want %q", tt.p, tt.from, tt.to, got, tt.want)
		}
	}
}

func TestPathProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.StringMatching(`[a-z.]{1,4}`).Filter(func(s string) bool {
			return vpath.CheckName(s) == nil
		}), 1, 5).Draw(t, "names")
		p := vpath.Root
		for _, n := range names {
			p = p.Child(n)
		}
		if again, err := vpath.Parse(string(p)); err != nil || again != p {
			t.Fatalf("Parse(%q) = %q, %v", p, again, err)
		}
		if got := p.Dir().Child(p.Base()); got != p {
			t.Fatalf("Dir+Child of %q = %q", p, got)
		}
		if got := slices.Collect(p.Elements()); !slices.Equal(got, names) {
			t.Fatalf("Elements = %q, want %q", got, names)
		}
	})
}

func TestEscapeHidesNothing(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"plain text stays", "/a b/ä", "/a b/ä"},
		{"a newline cannot forge a line", "a\nb", `a\x0ab`},
		{"an escape sequence is inert", "\x1b[31m", `\x1b[31m`},
		{"a C1 control is inert", "\u009b1m", `\xc2\x9b1m`},
		{"a bidi override shows", "\u202egpj", `\u{202e}gpj`},
		{"a zero-width space shows", ".env\u200b", `.env\u{200b}`},
		{"broken UTF-8 is kept as bytes", "\xff", `\xff`},
		{"a backslash is doubled", `\x0a`, `\\x0a`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := vpath.Escape(tt.in); got != tt.want {
				t.Errorf("Escape(%q) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

func TestEscapeMessageEscapesNamesOnce(t *testing.T) {
	name := vpath.Escape("d/\xfe\\")
	for in, want := range map[string]string{
		"it contains " + name: `it contains d/\xfe\\`,
		"a \x1b[31m\nb \xff":  `a \x1b[31m\x0ab \xff`,
		"plain":               "plain",
	} {
		got := vpath.EscapeMessage(in)
		if got != want {
			t.Errorf("EscapeMessage(%q) = %q, want %q", in, got, want)
		}
		if again := vpath.EscapeMessage(got); again != got {
			t.Errorf("EscapeMessage(%q) = %q, want no change", got, again)
		}
	}
}

func FuzzEscapeIsLossless(f *testing.F) {
	for _, s := range []string{"", "a\\", "\xff\x00", "\u202e", `\u{41}`, "\ufffd"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := vpath.Escape(s)
		got, err := vpath.Unescape(e)
		if err != nil || got != s {
			t.Fatalf("Unescape(Escape(%q)) = %q, %v", s, got, err)
		}
		if strings.ContainsAny(e, "\n\r\x1b\x00") {
			t.Fatalf("Escape(%q) = %q holds a control", s, e)
		}
	})
}

func TestUnescapeRefusesForeignEscapes(t *testing.T) {
	for _, bad := range []string{`\`, `\n`, `\x1`, `\xzz`, `\u{`, `\u{110000}`, `\u41`} {
		if got, err := vpath.Unescape(bad); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("Unescape(%q) = %q, %v, want Invalid", bad, got, err)
		}
	}
}
