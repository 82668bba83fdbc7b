package ignore

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// oracle is git, asked about everything in a tree.
type oracle struct {
	repository, tree string
	paths            []vpath.Path
	isDir            map[vpath.Path]bool
}

// newOracle makes a tree of the files; a directory's name ends with a slash.
func newOracle(t *testing.T, files ...string) *oracle {
	t.Helper()
	testenv.Command(t, "git")
	base := t.TempDir()
	o := &oracle{repository: filepath.Join(base, "git"), tree: filepath.Join(base, "tree"), isDir: map[vpath.Path]bool{}}
	if out, err := exec.Command("git", "init", "--quiet", "--bare", o.repository).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	for _, f := range files {
		at := filepath.Join(o.tree, f)
		var err error
		if strings.HasSuffix(f, "/") {
			err = os.MkdirAll(at, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(at), 0o755); err == nil {
			err = os.WriteFile(at, nil, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(o.tree, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == o.tree {
			return err
		}
		p := vpath.Path(path[len(o.tree):])
		o.paths = append(o.paths, p)
		o.isDir[p] = e.IsDir()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// ignored returns what git makes of the patterns: the pattern that decided
// about each path, "" for none.
func (o *oracle) ignored(patterns string) (map[vpath.Path]string, error) {
	if err := os.WriteFile(filepath.Join(o.tree, ".gitignore"), []byte(patterns), 0o644); err != nil {
		return nil, err
	}
	var in bytes.Buffer
	for _, p := range o.paths {
		in.WriteString(p.Rel() + "\x00")
	}
	cmd := exec.Command("git", "--git-dir="+o.repository, "--work-tree="+o.tree, "-c", "core.bare=false", "-c", "core.excludesFile=/dev/null",
		"check-ignore", "--no-index", "--stdin", "-z", "--verbose", "--non-matching")
	cmd.Dir, cmd.Stdin = o.tree, &in
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() > 1 { // 1: nothing matched
		return nil, fmt.Errorf("git check-ignore: %w: %s", err, stderr.String())
	}
	fields := strings.Split(string(out), "\x00")
	by := map[vpath.Path]string{}
	for i := 0; i+4 < len(fields); i += 4 { // file, line, pattern, path
		by[vpath.Path("/"+fields[i+3])] = fields[i+2]
	}
	if len(by) != len(o.paths) {
		return nil, fmt.Errorf("git answered for %d of %d paths: %s", len(by), len(o.paths), stderr.String())
	}
	return by, nil
}

// agrees fails where git and a Matcher differ.
func (o *oracle) agrees(t rapid.TB, patterns string) {
	t.Helper()
	by, err := o.ignored(patterns)
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range o.paths {
		want := by[p] != "" && !strings.HasPrefix(by[p], "!")
		if got := m.Excludes(p, o.isDir[p]); got != want {
			t.Errorf("%q leaves out %s: %v; git says %v, by %q", patterns, p, got, want, by[p])
		}
	}
}

func TestAgainstGit(t *testing.T) {
	o := newOracle(t, "a", "b", "ab", "ba", "aab", "abab", "-", "#a", "!a", "a b", " ", "a ", `a\`, `\`, "[a]", "*", "?", "^", "A", ".a",
		"d/a", "d/b", "d/ab", "d/d/a", "d/d/b", "d/d/d/ab", "d/a.b", "b.d/a", "b.d/d/b", "da/b", "dab/d/b", "e/", "e.a/", "e/a/", "a.b/a/b/d")
	alphabet := []string{
		"a", "b", "d", "ab", "e", ".", "-", " ", "A", "*", "*", "**", "**", "***", "?", "/", "/", "/", "[ab]", "[!a]", "[^d-z]", "[a-]", "[]a]",
		"[", "]", "!", "#", `\`, "[[:alpha:]]", "[[:bogus:]]", "[:", `[\]]`, "[b-a]", "[--a]", "\r", "\x00",
	}
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.Custom(func(t *rapid.T) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom(alphabet), 1, 6).Draw(t, "pattern"), "")
		})
		lines := rapid.SliceOfN(pattern, 1, 5).Draw(t, "lines")
		ending := rapid.SampledFrom([]string{"", "\n", "\r\n"}).Draw(t, "ending")
		o.agrees(t, strings.Join(lines, "\n")+ending)
	})
}

// The corner cases that are git's own.
func TestAgainstGitWhereItIsOdd(t *testing.T) {
	o := newOracle(t, "foo/bar", "foobar", "foox/y/bar", "fooz/bar", "x/foo", "x/foot/y", "x/fo", "axx/y/bar", "axx/bar", "é", "y", "a/b", "d", "c/e/f")
	for _, patterns := range []string{
		"foo**/bar", "x/foo**", "x/fo?**", "a?**/bar", "?", "a//b", "a/./b", "c/../d", "//", "/", "!", "!/", "**/", "/**/", "**/**/f", "c/***/f",
		`c\/**/f`, `c/**\/f`, "c/**f", "c/e**/f", "\ufefffoo", "y\t", "é/", "[é]", "c/[e/]f", "c[/]e", "/*\n!/c/\n/c/*\n!/c/e/", "c\n!c/e/f",
	} {
		o.agrees(t, patterns)
	}
}

func TestEachByteAgainstGit(t *testing.T) {
	var files []string
	for b := 1; b < 256; b++ {
		if b != '/' {
			files = append(files, "c"+string([]byte{byte(b)}))
		}
	}
	o := newOracle(t, files...)
	for name := range classes {
		o.agrees(t, fmt.Sprintf("c[[:%s:]]", name))
		o.agrees(t, fmt.Sprintf("c[![:%s:]]", name))
	}
	o.agrees(t, "c?")
	o.agrees(t, "c[\x80-\xc0]")
	o.agrees(t, "c[!\x01-z]")
}

func FuzzMatcher(f *testing.F) {
	for _, s := range []string{"a", "*", "**/a", "a/**/b/", "!a", "[a-z]", "[[:digit:]]?", `\`, "a\\ \r", "[!", "/**"} {
		f.Add(s, "a/b")
	}
	f.Fuzz(func(t *testing.T, patterns, path string) {
		p, err := vpath.Parse(path)
		if err != nil || p.IsRoot() {
			return
		}
		m, err := New(patterns)
		if err != nil {
			return
		}
		m.Excludes(p, true)
		for after, want := range map[string]bool{"*": true, "!*": false} {
			m, err := New(patterns, after)
			if err == nil && m.ExcludesEntry(p, false) != want {
				t.Errorf("%q and then %q leave out %s: %v", patterns, after, p, !want)
			}
		}
	})
}
