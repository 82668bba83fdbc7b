package textdiff_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/textdiff"
)

func TestUnified(t *testing.T) {
	tests := []struct{ name, before, after, want string }{
		{"equal files have no diff", "a\n", "a\n", ""},
		{
			"a changed line stands between its context", "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nfive\n6\n7\n8\n9\n",
			"--- a\n+++ b\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n",
		},
		{"a file made from nothing starts at line 0", "", "a\nb\n", "--- a\n+++ b\n@@ -0,0 +1,2 @@\n+a\n+b\n"},
		{"a file emptied ends at line 0", "a\n", "", "--- a\n+++ b\n@@ -1 +0,0 @@\n-a\n"},
		{
			"a newline lost at the end is told", "a\n", "a",
			"--- a\n+++ b\n@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n",
		},
		{
			"a newline missing on both sides is told once", "x\na", "y\na",
			"--- a\n+++ b\n@@ -1,2 +1,2 @@\n-x\n+y\n a\n\\ No newline at end of file\n",
		},
		{"carriage returns are content", "a\r\n", "a\n", "--- a\n+++ b\n@@ -1 +1 @@\n-a\r\n+a\n"},
		{
			"changes six lines apart share a hunk", "x\n1\n2\n3\n4\n5\n6\nx\n", "y\n1\n2\n3\n4\n5\n6\ny\n",
			"--- a\n+++ b\n@@ -1,8 +1,8 @@\n-x\n+y\n 1\n 2\n 3\n 4\n 5\n 6\n-x\n+y\n",
		},
		{
			"changes seven lines apart are two hunks", "x\n1\n2\n3\n4\n5\n6\n7\nx\n", "y\n1\n2\n3\n4\n5\n6\n7\ny\n",
			"--- a\n+++ b\n@@ -1,4 +1,4 @@\n-x\n+y\n 1\n 2\n 3\n@@ -6,4 +6,4 @@\n 5\n 6\n 7\n-x\n+y\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := textdiff.Unified("a", "b", []byte(tt.before), []byte(tt.after))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Unified (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEachOfManyChangesIsItsOwn(t *testing.T) {
	var before, after strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&before, "line %d\n", i)
		if i%50 == 7 {
			fmt.Fprintf(&after, "changed %d\n", i)
		} else {
			fmt.Fprintf(&after, "line %d\n", i)
		}
	}
	hunks := textdiff.Hunks([]byte(before.String()), []byte(after.String()))
	inserted, deleted := textdiff.Count(hunks)
	if len(hunks) != 400 || inserted != 400 || deleted != 400 {
		t.Errorf("400 changed lines of 20,000 became %d hunks, +%d -%d", len(hunks), inserted, deleted)
	}
}

func TestAHugeLineIsOneLine(t *testing.T) {
	line := bytes.Repeat([]byte("x();"), textdiff.SizeLimit/4)
	hunks := textdiff.Hunks(line, append(bytes.Clone(line), '!'))
	if inserted, deleted := textdiff.Count(hunks); inserted != 1 || deleted != 1 {
		t.Errorf("a changed minified file shows +%d -%d, want +1 -1", inserted, deleted)
	}
}

func TestIsBinary(t *testing.T) {
	if !textdiff.IsBinary([]byte("a\x00")) || textdiff.IsBinary([]byte("a\xff")) || textdiff.IsBinary(nil) {
		t.Error("a NUL, and only a NUL, makes a file binary")
	}
	if textdiff.IsBinary(append(bytes.Repeat([]byte("a"), 8000), 0)) {
		t.Error("a NUL after the first 8000 bytes makes a file binary, unlike in git")
	}
}

// gitApply applies a patch of the file f in dir with git.
func gitApply(dir, patch string) error {
	cmd := exec.Command("git", "apply", "--whitespace=nowarn", "-")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	cmd.Stdin = strings.NewReader(patch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git apply: %w: %s", err, out)
	}
	return nil
}

// text draws files of few distinct lines, so that both unique and repeated
// ones occur, in either line ending and with or without a last newline.
func text() *rapid.Generator[string] {
	line := rapid.SampledFrom([]string{"", "a", "b", "c", "{", "}", "\tx", "long line", "ä", "\xff", "-- a", "++ b", "\\ No newline", "\r", "\x1b[1m"})
	return rapid.Custom(func(t *rapid.T) string {
		lines := rapid.SliceOfN(line, 0, 40).Draw(t, "lines")
		end := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "end")
		s := strings.Join(lines, end)
		if rapid.Bool().Draw(t, "newline") {
			s += end
		}
		return s
	})
}

func TestGitAppliesWhatUnifiedSays(t *testing.T) {
	testenv.Command(t, "git")
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	rapid.Check(t, func(t *rapid.T) {
		before, after := text().Draw(t, "before"), text().Draw(t, "after")
		if before == after {
			return
		}
		if err := os.WriteFile(file, []byte(before), 0o644); err != nil {
			t.Fatal(err)
		}
		patch := "diff --git a/f b/f\n" + textdiff.Unified("a/f", "b/f", []byte(before), []byte(after))
		if err := gitApply(dir, patch); err != nil {
			t.Fatalf("%v\n%s", err, patch)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != after {
			t.Fatalf("after git apply: %q, %v, want %q\n%s", got, err, after, patch)
		}
	})
}

func TestGitAppliesLargeRandomEdits(t *testing.T) {
	testenv.Command(t, "git")
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	random := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		var before, after strings.Builder
		for range 3000 {
			line := fmt.Sprintf("%d\n", random.IntN(1500))
			if random.IntN(10) > 0 {
				before.WriteString(line)
			}
			if random.IntN(10) > 0 {
				after.WriteString(line)
			}
		}
		if err := os.WriteFile(file, []byte(before.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := gitApply(dir, textdiff.Unified("a/f", "b/f", []byte(before.String()), []byte(after.String()))); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != after.String() {
			t.Fatalf("git apply gave another file (error %v)", err)
		}
	}
}

func FuzzHunksRebuildBothSides(f *testing.F) {
	f.Add([]byte("a\nb\n"), []byte("a\nc"))
	f.Add([]byte("\xff\r\n\x00"), []byte(""))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		oldText, newText := strings.SplitAfter(string(before), "\n"), ""
		at := 0
		for _, h := range textdiff.Hunks(before, after) {
			start := h.OldStart - 1
			if h.OldLines == 0 {
				start = h.OldStart
			}
			newText += strings.Join(oldText[at:start], "")
			for at = start; len(h.Lines) > 0; h.Lines = h.Lines[1:] {
				l := h.Lines[0]
				if l.Op != textdiff.Insert {
					if oldText[at] != l.Text {
						t.Fatalf("hunk says %q where the old file has %q", l.Text, oldText[at])
					}
					at++
				}
				if l.Op != textdiff.Delete {
					newText += l.Text
				}
			}
		}
		newText += strings.Join(oldText[at:], "")
		if newText != string(after) {
			t.Fatalf("the hunks turn %q into %q, want %q", before, newText, after)
		}
	})
}
