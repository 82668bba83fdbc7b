package textdiff_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/textdiff"
)

// What is written of two files is read as what it was written of.
func TestParsePatchReadsWhatUnifiedWrites(t *testing.T) {
	content := rapid.Custom(func(t *rapid.T) string {
		lines := rapid.SliceOf(rapid.SampledFrom([]string{
			"", "a", "b", "-- c", "++ d", "@@ -1 +1 @@", "diff --git a/x b/x", `\ No newline`, "\r", "\xff",
		})).Draw(t, "lines")
		return strings.Join(lines, "\n")
	})
	rapid.Check(t, func(t *rapid.T) {
		before, after := content.Draw(t, "before"), content.Draw(t, "after")
		text := "diff --git a/f b/f\nnew file mode 100644\n" + textdiff.Unified("a/f", "b/f", []byte(before), []byte(after)) +
			"diff --git a/g b/g\ndeleted file mode 100644\n# a note\n"
		got, err := textdiff.ParsePatch(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		want := []textdiff.Patch{{Added: true, Hunks: textdiff.Hunks([]byte(before), []byte(after))}, {Deleted: true}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s\n%s", diff, text)
		}
	})
}

func TestParsePatchRefuses(t *testing.T) {
	const head = "diff --git a/f b/f\n--- a/f\n+++ b/f\n"
	for name, hunk := range map[string]string{
		"a header without its end":   "@@ -1 +1\n-a\n+b\n",
		"a number that is none":      "@@ -x +1 @@\n-a\n+b\n",
		"a negative number":          "@@ -1,-1 +1 @@\n+b\n",
		"a hunk that ends early":     "@@ -1,2 +1 @@\n-a\n+b\n",
		"more lines than are told":   "@@ -1 +1,2 @@\n-a\n-b\n",
		"a line of no kind":          "@@ -1 +1 @@\n?a\n+b\n",
		"another file in its middle": "@@ -1,2 +1 @@\n-a\ndiff --git a/g b/g\n",
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := textdiff.ParsePatch(head + hunk); !errdefs.Is(err, errdefs.Invalid) {
				t.Errorf("ParsePatch = %v, %v, want Invalid", got, err)
			}
		})
	}
}

func FuzzParsePatch(f *testing.F) {
	f.Add("diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,2 +1 @@\n a\n-b\n\\ No newline at end of file\n")
	f.Fuzz(func(t *testing.T, text string) {
		patches, err := textdiff.ParsePatch(text)
		for _, p := range patches {
			for _, h := range p.Hunks {
				if err == nil && len(h.Lines) > len(text) {
					t.Errorf("%d lines of %d bytes", len(h.Lines), len(text))
				}
			}
		}
	})
}
