package textdiff_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/textdiff"
)

func TestSplit(t *testing.T) {
	before, after := "1\nx\n2\n3\n4\ny\n5\n", "1\nX\n2\n3\n4\nY\nZ\n5\n"
	hunks := textdiff.Hunks([]byte(before), []byte(after))
	if len(hunks) != 1 {
		t.Fatalf("%d hunks, want 1", len(hunks))
	}
	var got []string
	for _, piece := range textdiff.Split(hunks[0]) {
		got = append(got, piece.String())
	}
	want := []string{"@@ -1,5 +1,5 @@\n 1\n-x\n+X\n 2\n 3\n 4\n", "@@ -3,5 +3,6 @@\n 2\n 3\n 4\n-y\n+Y\n+Z\n 5\n"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Split (-want +got):\n%s", diff)
	}
	if whole := textdiff.Split(textdiff.Hunks([]byte("a\n"), []byte("b\n"))[0]); len(whole) != 1 {
		t.Errorf("a hunk with one run of changes was split into %d", len(whole))
	}
}

// subset draws some of the hunks, and returns the others, too.
func subset(t *rapid.T, hunks []textdiff.Hunk) (chosen, others []textdiff.Hunk) {
	for _, h := range hunks {
		if rapid.Bool().Draw(t, "chosen") {
			chosen = append(chosen, h)
		} else {
			others = append(others, h)
		}
	}
	return chosen, others
}

// inverted are the hunks from after to before.
func inverted(hunks []textdiff.Hunk) []textdiff.Hunk {
	var out []textdiff.Hunk
	for _, h := range hunks {
		i := textdiff.Hunk{OldStart: h.NewStart, OldLines: h.NewLines, NewStart: h.OldStart, NewLines: h.OldLines}
		for _, l := range h.Lines {
			switch l.Op {
			case textdiff.Delete:
				l.Op = textdiff.Insert
			case textdiff.Insert:
				l.Op = textdiff.Delete
			}
			i.Lines = append(i.Lines, l)
		}
		out = append(out, i)
	}
	return out
}

func patched(t *rapid.T, before string, hunks []textdiff.Hunk) string {
	got, err := textdiff.Patched([]byte(before), hunks)
	if err != nil {
		t.Fatalf("Patched(%q): %v", before, err)
	}
	return string(got)
}

// What is chosen of a diff is the old text with these changes, and the new text without the
// others.
func TestChosenPiecesAndTheOthersAreAllOfTheDiff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := text().Draw(t, "before"), text().Draw(t, "after")
		var pieces []textdiff.Hunk
		for _, h := range textdiff.Hunks([]byte(before), []byte(after)) {
			pieces = append(pieces, textdiff.Split(h)...)
		}
		chosen, others := subset(t, pieces)
		got := patched(t, before, chosen)
		if want := patched(t, after, inverted(others)); got != want {
			t.Fatalf("with the chosen: %q, without the others: %q", got, want)
		}
		if len(others) == 0 && got != after || len(chosen) == 0 && got != before {
			t.Fatalf("%d of %d pieces of %q → %q give %q", len(chosen), len(pieces), before, after, got)
		}
		if rest := textdiff.Hunks([]byte(got), []byte(after)); patched(t, got, rest) != after {
			t.Fatalf("the rest of %q does not give %q", got, after)
		}
	})
}

func TestPatchedIsWhatGitAppliesOfHunks(t *testing.T) {
	testenv.Command(t, "git")
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	rapid.Check(t, func(t *rapid.T) {
		before, after := text().Draw(t, "before"), text().Draw(t, "after")
		chosen, _ := subset(t, textdiff.Hunks([]byte(before), []byte(after)))
		if len(chosen) == 0 || before == "" {
			return
		}
		want := patched(t, before, chosen)
		if want == "" {
			return // git removes the file
		}
		if err := os.WriteFile(file, []byte(before), 0o644); err != nil {
			t.Fatal(err)
		}
		var patch strings.Builder
		patch.WriteString("diff --git a/f b/f\n--- a/f\n+++ b/f\n")
		shift := 0
		for _, h := range chosen {
			// As if the others were not there.
			h.NewStart = h.OldStart + shift
			if h.OldLines == 0 {
				h.NewStart++
			}
			if h.NewLines == 0 {
				h.NewStart--
			}
			shift += h.NewLines - h.OldLines
			patch.WriteString(h.String())
		}
		if err := gitApply(dir, patch.String()); err != nil {
			t.Fatalf("%v\n%s", err, patch.String())
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Fatalf("git apply gives %q, %v, Patched %q\n%s", got, err, want, patch.String())
		}
	})
}

func TestPatchedRefusesHunksOfAnotherText(t *testing.T) {
	hunks := textdiff.Hunks([]byte("a\nb\nc\n"), []byte("a\nB\nc\n"))
	twice := slices.Concat(hunks, hunks)
	for _, tt := range []struct {
		name, text string
		hunks      []textdiff.Hunk
	}{
		{"another deleted line", "a\nx\nc\n", hunks},
		{"another line around it", "a\nb\nx\n", hunks},
		{"a text that ends before", "a\n", hunks},
		{"a hunk that comes twice", "a\nb\nc\n", twice},
		{"an insertion behind the end", "a\n", []textdiff.Hunk{{OldStart: 2, NewStart: 3, NewLines: 1, Lines: []textdiff.Line{{Op: textdiff.Insert, Text: "b\n"}}}}},
		{"a line before the first", "a\n", []textdiff.Hunk{{OldStart: -3, OldLines: 1, Lines: []textdiff.Line{{Op: textdiff.Delete, Text: "a\n"}}}}},
		{"an insertion before the first line", "a\n", []textdiff.Hunk{{OldStart: -3, OldLines: 1, Lines: []textdiff.Line{{Op: textdiff.Insert, Text: "a\n"}}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := textdiff.Patched([]byte(tt.text), tt.hunks); err == nil {
				t.Errorf("Patched = %q, want an error", got)
			}
		})
	}
}
