package merge_test

import (
	"os"
	"path/filepath"
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

// A text is not merged by lines if the version with which both began was not stored: the first
// sandbox removed it, and the source changed before that one wrote it again.
func TestWithoutABaseNothingIsMergedByLines(t *testing.T) {
	mine, other := changed("one", "mine"), changed("five", "other")
	for resolve, want := range map[conflict.Resolution]string{
		conflict.Merge: mine, conflict.Markers: mine, conflict.Ours: mine, conflict.Theirs: other,
	} {
		w := newTest(t, source)
		w.fork("fork")
		w.remove("fork", "a")
		must(t, os.WriteFile(filepath.Join(w.source, "a"), []byte(changed("three", "3")), 0o644))
		w.write("fork", "a", other)
		w.write("into", "a", mine)
		w.write("fork", "more", "more\n")
		r := w.merge("fork", "into", resolve)
		decided := resolve == conflict.Ours || resolve == conflict.Theirs
		wantKinds, wantMore := map[string]conflict.Kind{"a": conflict.NoBase}, ""
		if decided {
			wantKinds, wantMore = map[string]conflict.Kind{}, "more\n"
		}
		if diff := cmp.Diff(wantKinds, kinds(r)); diff != "" {
			t.Errorf("resolved by %d: %s", resolve, diff)
		}
		w.wants("into", "a", want)
		w.wants("into", "more", wantMore)
		if decided && (len(r.Paths) != 2 || r.Paths[0].Resolved != conflict.NoBase) {
			t.Errorf("resolved by %d: %+v", resolve, r.Paths)
		}
	}
}
