package pick_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/cli/pick"
	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/hunk"
)

// box has changes in memory.
type box struct {
	files  []review.FileDiff
	groups []review.Group
	old    map[vpath.Path]string
	texts  map[vpath.Path]string
}

func (b *box) change(f review.FileDiff, before, after string) {
	f.Status = changes.Modified
	if before == "" {
		f.Status = changes.Added
	} else if f.Old == nil {
		f.Old = &review.Side{Mode: 0o100644, SizeBytes: int64(len(before))}
	}
	if f.New == nil {
		f.New = &review.Side{Mode: 0o100644, SizeBytes: int64(len(after))}
	}
	if after == "" {
		f.Status, f.New = changes.Deleted, nil
	}
	if b.old == nil {
		b.old, b.texts = map[vpath.Path]string{}, map[vpath.Path]string{}
	}
	b.files, b.old[f.Path], b.texts[f.Path] = append(b.files, f), before, after
}

func (b *box) content(f *review.FileDiff) (review.Content, error) {
	before, after := b.old[f.Path], b.texts[f.Path]
	c := review.Content{Hunks: textdiff.Hunks([]byte(before), []byte(after))}
	if after != "" {
		c.SHA256 = fmt.Sprintf("%064x", after)
	}
	return c, nil
}

func (b *box) review() *review.Review {
	return review.Of("fix", "", "", "", b.files, b.groups, b.content)
}

// names returns the ids with names: "path", "path mode", "path 1" for a hunk, "path 1.2" for a
// piece.
func (b *box) names() map[string]string {
	names := map[string]string{}
	for i := range b.files {
		f := &b.files[i]
		c, _ := b.content(f)
		set := hunk.Of(f, &c)
		names[set.Whole] = f.Path.Rel()
		if set.Mode != "" {
			names[set.Mode] = f.Path.Rel() + " mode"
		}
		for i, h := range set.Text {
			names[h.ID] = fmt.Sprintf("%s %d", f.Path.Rel(), i+1)
			for j, piece := range h.Pieces {
				names[piece.ID] = fmt.Sprintf("%s %d.%d", f.Path.Rel(), i+1, j+1)
			}
		}
	}
	return names
}

// answer answers with the keys, and returns what was chosen and shown.
func (b *box) answer(t *testing.T, keys string) (chosen []string, shown string) {
	t.Helper()
	var out bytes.Buffer
	ids, err := pick.Ask(b.review(), pick.Options{In: strings.NewReader(strings.Join(strings.Split(keys, ""), "\n")), Out: &out})
	if err != nil {
		t.Fatal(err)
	}
	names := b.names()
	for _, id := range ids {
		chosen = append(chosen, names[id])
	}
	return chosen, out.String()
}

func lines(n int, others map[int]string) string {
	var b strings.Builder
	for i := range n {
		if line, is := others[i]; is {
			b.WriteString(line)
			continue
		}
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

// someChanges are two hunks in a, of which the second has two pieces, with the mode; a new b; and
// two hunks in c.
func someChanges() *box {
	b := &box{}
	modes := review.FileDiff{Path: "/a", Old: &review.Side{Mode: 0o100644}, New: &review.Side{Mode: 0o100755}}
	b.change(modes, lines(40, nil), lines(40, map[int]string{3: "three\n", 20: "twenty\n", 23: "more\n"}))
	b.change(review.FileDiff{Path: "/b"}, "", "new\n")
	b.change(review.FileDiff{Path: "/c"}, lines(40, nil), lines(40, map[int]string{3: "3\n", 30: "30\n"}))
	return b
}

func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		name, keys string
		want       []string
	}{
		{"yes and no", "nynyyn", []string{"a 1", "b", "c 1"}},
		{"the mode alone", "ynnnnn", []string{"a mode"}},
		{"the rest of a file", "nany d", []string{"a 1", "a 2", "c 1"}},
		{"nothing more of a file", "ydyyy", []string{"a mode", "b", "c 1", "c 2"}},
		{"leave", "nyq", []string{"a 1"}},
		{"the end of the input is to leave", "ny", []string{"a 1"}},
		{"a hunk in pieces", "nnsnynnn", []string{"a 2.2"}},
		{"what was left for later comes at the end", "nnnjnny", []string{"b"}},
		{"back to what was left for later", "jkynnnnn", []string{"a mode"}},
		{"no word that is not offered counts", "nsYnnnnn", nil},
		{"a hunk that cannot be split", "nsnnnnn", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, shown := someChanges().answer(t, strings.ReplaceAll(tt.keys, " ", ""))
			if !slices.Equal(got, tt.want) {
				t.Errorf("%q chose %q, want %q\n%s", tt.keys, got, tt.want, shown)
			}
		})
	}
}

func TestWhatIsShownBeforeAQuestion(t *testing.T) {
	b := &box{}
	b.change(review.FileDiff{Path: "/x\x1b[2J", Mark: &review.RiskFlag{Risk: review.RunsOnHost, Reason: "a hook"}}, "a\n", "b\x1b]0;title\n")
	_, shown := b.answer(t, "n")
	want := "# runs on the host: \"x\\033[2J\" (a hook)\ndiff --git \"a/x\\033[2J\" \"b/x\\033[2J\"\n# control characters are shown escaped: this is no patch\n@@ -1 +1 @@\n-a\n+b\\x1b]0;title\n(1/1) Apply this hunk [y,n,q,a,d,j,k,?]? "
	if shown != want {
		t.Errorf("shown:\n%q\nwant:\n%q", shown, want)
	}
}

func TestARenamedFileIsOneQuestion(t *testing.T) {
	b := &box{}
	b.change(review.FileDiff{Path: "/new", RenamedFrom: "/old"}, "", "1\n")
	b.change(review.FileDiff{Path: "/old", RenamedTo: "/new"}, "1\n", "")
	got, shown := b.answer(t, "y")
	if !slices.Equal(got, []string{"new", "old"}) || !strings.Contains(shown, "rename from old") {
		t.Errorf("chose %q:\n%s", got, shown)
	}
}

func TestAGitDirectoryAndAGroupAreOneQuestionEach(t *testing.T) {
	b := &box{groups: []review.Group{{Name: ".git", Count: 1, Lines: []string{"1 commit"}}, {Name: "node_modules", Count: 2, Lines: []string{"packages"}}}}
	b.change(review.FileDiff{Path: "/.git/hooks/x", Mark: &review.RiskFlag{Risk: review.RunsOnHost, Reason: "a hook"}}, "", "hook\n")
	b.change(review.FileDiff{Path: "/.git/HEAD", Group: ".git"}, "1\n", "2\n")
	b.change(review.FileDiff{Path: "/node_modules/a", Group: "node_modules"}, "", "1\n")
	b.change(review.FileDiff{Path: "/node_modules/b", Group: "node_modules"}, "", "1\n")
	b.change(review.FileDiff{Path: "/never", LeftOut: "an own entry"}, "", "1\n")
	got, shown := b.answer(t, "yn")
	if !slices.Equal(got, []string{".git/hooks/x", ".git/HEAD"}) || !strings.Contains(shown, "+hook") || !strings.Contains(shown, ".git: 1 file, 1 commit") {
		t.Errorf("chose %q:\n%s", got, shown)
	}
	if got, _ := b.answer(t, "ny"); !slices.Equal(got, []string{"node_modules/a", "node_modules/b"}) {
		t.Errorf("chose %q of the group", got)
	}
}

func TestHelpDoesNotShowTheHunkAgain(t *testing.T) {
	for _, tt := range []struct{ key, want string }{
		{"?", "y - apply this\n"},
		{"x", "? - show this help\n"},
		{"s", "]? this cannot be split\n"},
		{"e", "]? hunks cannot be edited here; edit the file after the apply, or in the sandbox\n"},
		{"k", "]? no earlier hunk is undecided\n"},
	} {
		b := &box{}
		b.change(review.FileDiff{Path: "/c"}, lines(40, nil), lines(40, map[int]string{3: "3\n", 30: "30\n"}))
		_, shown := b.answer(t, tt.key+"q")
		if n := strings.Count(shown, "+3\n"); n != 1 || !strings.Contains(shown, tt.want) || strings.Count(shown, "(1/2)") != 2 {
			t.Errorf("%s: the hunk is shown %d times, want once, with %q:\n%s", tt.key, n, tt.want, shown)
		}
	}
}

func TestAFileIsNamedAgainAfterAnotherOne(t *testing.T) {
	_, shown := someChanges().answer(t, "nnjndkkkjq")
	questions := strings.SplitAfter(shown, "]? ")
	for i, want := range []string{
		"new mode 100755\n(1/3) Apply the change of the mode", "\n(2/3) Apply this hunk", "\n(3/3) Apply this hunk", "diff --git a/b b/b",
		"diff --git a/c b/c", "diff --git a/a b/a",
	} {
		if !strings.Contains(questions[i], want) {
			t.Errorf("question %d: got %q, want %q in it", i+1, questions[i], want)
		}
	}
	for _, i := range []int{1, 2} { // of the file of the question before
		if strings.Contains(questions[i], "diff --git") {
			t.Errorf("question %d names the file again: %q", i+1, questions[i])
		}
	}
	if last := questions[5]; !strings.Contains(last, "(3/3)") || strings.Count(last, "diff --git a/a b/a\nold mode") != 1 {
		t.Errorf("the hunk that was left for later is shown as %q", last)
	}
}
