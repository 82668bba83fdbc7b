package merge3_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// git merges three texts with "git merge-file", the reference.
type git struct{ dir string }

func newGit(t *testing.T) git {
	testenv.Command(t, "git")
	return git{t.TempDir()}
}

// merge returns the text and the number of conflicts.
func (g git) merge(t interface{ Fatal(...any) }, base, ours, theirs []byte, favor ...string) (text []byte, conflicts int) {
	for name, content := range map[string][]byte{"base": base, "ours": ours, "theirs": theirs} {
		if err := os.WriteFile(filepath.Join(g.dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := append([]string{"merge-file", "-p", "-q", "-L", "ours", "-L", "base", "-L", "theirs"}, favor...)
	cmd := exec.Command("git", append(args, "ours", "base", "theirs")...)
	cmd.Dir = g.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1", "HOME=" + g.dir}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() > 127) {
		t.Fatal(err, stderr.String())
	}
	return text, cmd.ProcessState.ExitCode()
}

// compare checks that Lines merges as git does, with and without conflicts.
func (g git) compare(t interface {
	Fatal(...any)
	Fatalf(string, ...any)
}, base, ours, theirs []byte,
) {
	want, conflicts := g.merge(t, base, ours, theirs)
	r := lines(t, base, ours, theirs)
	got := r.Markers("ours", "theirs")
	if !bytes.Equal(got, want) {
		t.Fatalf("base %q\nours %q\ntheirs %q\nmerges to\n%q\nwant\n%q", base, ours, theirs, got, want)
	}
	if len(r.Conflicts) != min(conflicts, 127) && conflicts < 127 || r.Clean != (conflicts == 0) {
		t.Fatalf("base %q\nours %q\ntheirs %q\nhas %d conflicts (clean: %v), want %d", base, ours, theirs, len(r.Conflicts), r.Clean, conflicts)
	}
	if r.Clean && !bytes.Equal(r.Text, want) {
		t.Fatalf("the clean text is %q, want %q", r.Text, want)
	}
}

// vocabulary draws texts of few different lines, so that they match in many ways.
func vocabulary(lines ...string) *rapid.Generator[[]string] {
	return rapid.SliceOfN(rapid.SampledFrom(lines), 0, 30)
}

// edited draws what an editor makes of a text: it replaces a few runs of lines.
func edited(t *rapid.T, lines []string, words *rapid.Generator[[]string], label string) []string {
	lines = append([]string(nil), lines...)
	for range rapid.IntRange(0, 3).Draw(t, label) {
		at := rapid.IntRange(0, len(lines)).Draw(t, "at")
		end := min(len(lines), at+rapid.IntRange(0, 3).Draw(t, "removed"))
		with := words.Draw(t, "with")
		lines = append(append(lines[:at:at], with[:min(len(with), 3)]...), lines[end:]...)
	}
	return lines
}

func joined(t *rapid.T, lines []string) []byte {
	end := rapid.SampledFrom([]string{"\n", "\n", "\n", "\r\n"}).Draw(t, "line end")
	text := strings.Join(lines, end)
	if len(lines) > 0 && rapid.IntRange(0, 4).Draw(t, "final newline") > 0 {
		text += end
	}
	return []byte(text)
}

func TestLinesMergesAsGitDoes(t *testing.T) {
	g := newGit(t)
	for name, words := range map[string]*rapid.Generator[[]string]{
		"texts of few different lines": vocabulary("a", "b", "}", "", "c d"),
		"programs":                     vocabulary("{", "}", "", "\tif a {", "\tb()", "\tc()", "return", "// note", "x := 1", "y := 2", "func f() {", "z"),
		"texts of punctuation":         vocabulary("{", "}", "", "--", "[", "a"),
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				base := words.Draw(t, "base")
				g.compare(t, joined(t, base), joined(t, edited(t, base, words, "ours")), joined(t, edited(t, base, words, "theirs")))
			})
		})
	}
	t.Run("unrelated texts", func(t *testing.T) {
		words := vocabulary("a", "b", "c", "d", "", "}")
		rapid.Check(t, func(t *rapid.T) {
			g.compare(t, joined(t, words.Draw(t, "base")), joined(t, words.Draw(t, "ours")), joined(t, words.Draw(t, "theirs")))
		})
	})
}

func TestAConflictIsResolvedAsGitDoes(t *testing.T) {
	g := newGit(t)
	words := vocabulary("a", "b", "}", "", "c d", "e")
	rapid.Check(t, func(t *rapid.T) {
		base := words.Draw(t, "base")
		before, ours, theirs := joined(t, base), joined(t, edited(t, base, words, "ours")), joined(t, edited(t, base, words, "theirs"))
		r := lines(t, before, ours, theirs)
		for favor, got := range map[string][]byte{"--ours": r.Ours(), "--theirs": r.Theirs()} {
			if want, _ := g.merge(t, before, ours, theirs, favor); !bytes.Equal(got, want) {
				t.Fatalf("%s of base %q\nours %q\ntheirs %q\nis\n%q\nwant\n%q", favor, before, ours, theirs, got, want)
			}
		}
	})
}
