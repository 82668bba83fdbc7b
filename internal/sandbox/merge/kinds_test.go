package merge_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/view/layer"
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

// A mode that a fork has given to one file stays away from another name that the file has in the
// sandbox, and so does a content.
func TestAMergeChangesNoOtherNameOfAFile(t *testing.T) {
	w := newTest(t, source)
	w.fork("fork")
	w.write("into", "bin", "of into")
	w.in("into", func(s *layer.Stack) {
		for _, name := range []string{"a", "b", "bin"} {
			_, err := s.Link(at(name), at("link-of-"+name))
			must(t, err)
		}
	})
	w.chmod("fork", "a", 0o600)
	w.chmod("fork", "bin", 0o700)
	w.write("fork", "b", "B\n")
	w.clean("fork", "into")
	w.in("into", func(s *layer.Stack) {
		for name, want := range map[string]uint32{"a": 0o600, "link-of-a": 0o644, "b": 0o644, "link-of-b": 0o644, "bin": 0o700, "link-of-bin": 0o644} {
			i, err := s.Lookup(at(name))
			must(t, err)
			if got := i.Mode & 0o777; got != want {
				t.Errorf("%s has the mode %o, want %o", name, got, want)
			}
		}
	})
	for name, want := range map[string]string{"a": lines, "link-of-a": lines, "b": "B\n", "link-of-b": "b\n", "bin": "of into", "link-of-bin": "of into"} {
		w.wants("into", name, want)
	}
}

// A text is not merged by lines if the version with which both began was not stored: the first
// sandbox removed it, and the source changed before that one wrote it again.
// What both made where the fork began with nothing has no base, though the sandbox and the source
// had a file there before.
func TestWhatWasRemovedBeforeTheForkIsNoBase(t *testing.T) {
	w := newTest(t, source)
	w.write("into", "a", changed("two", "2"))
	w.remove("into", "a")
	must(t, os.Remove(filepath.Join(w.source, "a")))
	w.fork("fork")
	mine := changed("one", "mine")
	w.write("into", "a", mine)
	w.write("fork", "a", changed("five", "other"))
	if diff := cmp.Diff(map[string]conflict.Kind{"a": conflict.BothAdded}, kinds(w.merge("fork", "into", conflict.Merge))); diff != "" {
		t.Error(diff)
	}
	w.wants("into", "a", mine)
}

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
