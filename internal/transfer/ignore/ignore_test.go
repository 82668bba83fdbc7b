package ignore

import (
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func compile(t testing.TB, texts ...string) *Matcher {
	t.Helper()
	m, err := New(texts...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestExcludes(t *testing.T) {
	for _, c := range []struct {
		name, patterns string
		out, in        string // paths, a comma between them; a directory's ends with a slash
	}{
		{"a name is left out at any depth", "x", "x,a/x,a/x/,x/y/z", "xx,a/xy"},
		{"a slash at the beginning anchors", "/x", "x,x/y", "a/x"},
		{"a slash in the middle anchors", "a/x", "a/x", "b/a/x,x"},
		{"a slash at the end is about directories", "x/", "x/,x/y,a/x/", "x,a/x"},
		{"a star stays in its element", "a/*.c", "a/b.c", "a/b/d.c"},
		{"a star alone is everything", "*", "a,a/b,.x", ""},
		{"two stars in front are any depth", "**/x/y", "x/y,a/b/x/y", "y,x/a/y"},
		{"two stars in between are any depth", "a/**/x", "a/x,a/b/c/x", "b/a/x"},
		{"two stars at the end are all below", "a/**", "a/b,a/b/c", "a,a/"},
		{"the last pattern decides", "*.c\n!keep.c", "x.c,a/x.c", "keep.c,a/keep.c"},
		{"below what is left out nothing comes back", "a/\n!a/keep", "a/keep", "keep"},
		{"what stands in it comes back", "a/*\n!a/keep", "a/x", "a/,a/keep"},
		{"comments and empty lines are nothing", "# x\n\n   \nx # y", "", "x,y"},
		{"a backslash protects", `\#x` + "\n" + `\!y` + "\n" + `z\ `, "#x,!y,z ", "z"},
		{"spaces at the end go", "x  ", "x", ""},
		{"lines may end as in DOS", "x\r\ny\r", "x,y", ""},
		{"a byte order mark goes", "\ufeffx", "x", ""},
		{"case counts", "Thumbs.db", "Thumbs.db", "thumbs.db"},
		{"a question mark is one byte", "?", "a", "ab,é"},
		{"a malformed set matches nothing", "[a\nx[[:vowel:]]\n", "", "a,[a,xa"},
		{"a lone backslash matches nothing", `x\`, "", `x,x\`},
	} {
		m := compile(t, c.patterns)
		check := func(paths string, want bool) {
			for text := range strings.SplitSeq(paths, ",") {
				p, err := vpath.Parse(text)
				if err != nil || p.IsRoot() {
					continue
				}
				if got := m.Excludes(p, strings.HasSuffix(text, "/")); got != want {
					t.Errorf("%s: %q leaves out %q: %v, want %v", c.name, c.patterns, text, got, want)
				}
			}
		}
		check(c.out, true)
		check(c.in, false)
	}
}

func TestDefaultsAndTheFilesAfterThem(t *testing.T) {
	m := compile(t, Defaults, "*.log\n!.env\n", "!debug.log\n.env\n")
	for path, want := range map[vpath.Path]bool{
		"/.git": true, "/.git/config": true, "/a/.git/hooks/x": true, "/.github": false, "/.gitignore": false,
		"/a/__pycache__/x.py": true, "/x.pyc": true, "/x.py": false, "/lib/node_modules/y": true, "/x.egg-info/z": true,
		"/.env": true, "/.env.local": false, "/a.log": true, "/d/debug.log": false, "/": false,
	} {
		if got := m.Excludes(path, false); got != want {
			t.Errorf("%s is left out: %v, want %v", path, got, want)
		}
	}
}

func TestTooMuchIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"too many patterns": strings.Repeat("x\n", MaxBytes/2+1), "too long a pattern": strings.Repeat("*a", MaxLineBytes),
	} {
		if _, err := New(text); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New("#" + strings.Repeat("-", MaxLineBytes)); err != nil {
		t.Errorf("a long comment: %v", err)
	}
}

// A pattern that makes a matcher with backtracking try each way there is.
func TestHostilePatternsTakeNoLonger(t *testing.T) {
	m := compile(t, strings.Repeat("*a", 200)+"b", strings.Repeat("**/a*/", 100)+"b", strings.Repeat("*", 900)+"/x")
	for _, p := range []vpath.Path{"/" + vpath.Path(strings.Repeat("a", 255)), vpath.Path(strings.Repeat("/a", 1000))} {
		if m.ExcludesEntry(p, false) {
			t.Errorf("%.20s… is left out", p)
		}
	}
}

func BenchmarkExcludesEntry(b *testing.B) {
	m := compile(b, Defaults, strings.Repeat("*.log\nbuild/\n/dist\nsrc/**/gen_*.go\n[Bb]in/\n", 20))
	b.ReportAllocs()
	for b.Loop() {
		m.ExcludesEntry("/src/some/package/deeper/file_test.go", false)
	}
}

func TestMatchAndExcludesAll(t *testing.T) {
	m := compile(t, "*.o\n!keep.o\nbuild/")
	for text, want := range map[string][2]bool{"a.o": {true, true}, "keep.o": {false, true}, "a.c": {false, false}, "build": {false, false}, "build/": {true, true}, "build/x": {false, false}} {
		p, err := vpath.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if excluded, meant := m.Match(p, strings.HasSuffix(text, "/")); excluded != want[0] || meant != want[1] {
			t.Errorf("%q: got %v, %v", text, excluded, meant)
		}
	}
	for patterns, want := range map[string]bool{
		"*": true, "# made by a tool\n*\n": true, "*\n!.gitignore": false, "*/": false, "*.o": false, "": false, "/*": false, "a\n*": true,
	} {
		if got := compile(t, patterns).ExcludesAll(); got != want {
			t.Errorf("%q excludes all: %v", patterns, got)
		}
	}
}
