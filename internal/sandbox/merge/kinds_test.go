package merge_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
)

// A link has no lines, and a large text is not compared by lines.
func TestWhatHasNoLinesIsTakenAsAWhole(t *testing.T) {
	large := strings.Repeat("line\n", textdiff.SizeLimit/5)
	w := newTest(t, source)
	w.symlink("into", "a", "link")
	w.write("into", "large", large)
	w.fork("fork")
	for _, box := range []string{"into", "fork"} {
		w.remove(box, "link")
		w.symlink(box, box, "link")
		w.write(box, "large", large+"of "+box+"\n")
	}
	want := map[string]conflict.Kind{"link": conflict.Link, "large": conflict.TooLarge}
	if diff := cmp.Diff(want, kinds(w.merge("fork", "into", conflict.Markers))); diff != "" {
		t.Error(diff)
	}
	if got := w.shows("into", "link"); got != "-> into" {
		t.Errorf("after a conflict the link is %q", got)
	}
	if r := w.merge("fork", "into", conflict.Theirs); len(r.Conflicts) > 0 {
		t.Errorf("%+v", r.Conflicts)
	}
	if got := w.shows("into", "link"); got != "-> fork" {
		t.Errorf("the link is %q", got)
	}
	if got := w.shows("into", "large"); !strings.HasSuffix(got, "of fork\n") {
		t.Errorf("the text ends with %q", got[len(got)-10:])
	}
}
