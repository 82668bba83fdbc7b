package reviewui

import (
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/hunk"
)

// withHunks adds a file c.txt with two hunks, and returns the ids of the hunks and of the new file
// b.txt.
func withHunks() (f *fake, ids []string, b string) {
	f = newFake()
	before := strings.Repeat("line\n", 12)
	after := "first\n" + before + "last\n"
	file := review.FileDiff{
		Path: "/c.txt", Status: changes.Modified,
		Old: &review.Side{Mode: 0o100644, SizeBytes: int64(len(before))}, New: &review.Side{Mode: 0o100644, SizeBytes: int64(len(after))},
	}
	f.files = append(f.files, file)
	f.texts["/c.txt"], f.old = after, map[vpath.Path]string{"/c.txt": before}
	set := hunk.Of(&file, &review.Content{Hunks: textdiff.Hunks([]byte(before), []byte(after)), SHA256: "sum of " + after})
	for _, h := range set.Text {
		ids = append(ids, h.ID)
	}
	other := hunk.Of(&f.files[2], &review.Content{SHA256: "sum of " + f.texts["/b.txt"]})
	return f, ids, other.Whole
}

func TestAppliesTheStagedHunks(t *testing.T) {
	f, ids, b := withHunks()
	p := sit(t, f, 100, 24)
	p.press("G", "tab")
	p.sees("Space stage hunk · ] next · [ previous")
	p.sees("[ ] @@ -1,3 +1,4 @@")
	p.press("]", "space")
	p.sees("[~] M c.txt")
	p.sees("[ ] @@ -1,3 +1,4 @@")
	p.sees("[x] @@ -10,3 +11,4 @@")
	p.press("esc", "k", "space")
	p.sees("2 staged")
	p.press("A", "y")
	if len(f.hunks) != 1 || !slices.Equal(f.hunks[0], []string{b, ids[1]}) {
		t.Errorf("applied %q, want %q", f.hunks, []string{b, ids[1]})
	}
	p.sees("Applied 1 change; of 1 file only a part: the rest is in the sandbox")
	p.sees("[ ] M c.txt")
}

func TestAllHunksOfAFileAreTheFile(t *testing.T) {
	f, _, _ := withHunks()
	p := sit(t, f, 100, 24)
	p.press("G", "tab", "space")
	p.sees("[~] M c.txt")
	p.press("]", "space")
	p.sees("[x] M c.txt")
	p.press("space")
	p.sees("[~] M c.txt")
	p.press("[", "space")
	p.sees("[ ] M c.txt")
	p.sees("0 staged")

	// In the list, Space stages what is missing, and a key unstages all.
	p.press("space", "esc", "space")
	p.sees("[x] M c.txt")
	p.press("tab", "space", "-")
	p.sees("[ ] M c.txt")
	p.press("esc", "space", "A", "y")
	if len(f.hunks) != 0 || len(f.applied) != 1 || !slices.Equal(f.applied[0], []vpath.Path{"/c.txt"}) {
		t.Errorf("applied %q and the hunks %q, want the file", f.applied, f.hunks)
	}
}

func TestHunksOfAFileThatChangesAreUnstaged(t *testing.T) {
	f, _, _ := withHunks()
	p := sit(t, f, 100, 24)
	p.press("G", "tab", "space")
	p.sees("1 staged")
	f.texts["/c.txt"] = strings.Replace(f.texts["/c.txt"], "last", "LAST", 1)
	p.press("A", "y")
	if len(f.hunks)+len(f.applied) != 0 {
		t.Fatalf("applied %q, %q", f.hunks, f.applied)
	}
	p.sees("[!] M c.txt")
	if len(p.m.parts) != 0 {
		t.Errorf("still staged: %v", p.m.parts)
	}
}
