package merge_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/merge"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// changed returns lines of which one is another.
func changed(old, new string) string { return strings.Replace(lines, old, new, 1) }

func (w *world) clean(from, into string) merge.Result {
	w.t.Helper()
	r := w.merge(from, into, conflict.Merge)
	if len(r.Conflicts) > 0 {
		w.t.Fatalf("merge of %s into %s: %+v", from, into, r.Conflicts)
	}
	return r
}

func (w *world) wants(box, name, want string) {
	w.t.Helper()
	if got := w.shows(box, name); got != want {
		w.t.Fatalf("%s shows %q at %s, want %q", box, got, name, want)
	}
}

// A merge begins where the last one ended, in both directions, and at the fork after it was taken
// back.
func TestMergesBuildOnEachOther(t *testing.T) {
	w := newTest(t, source)
	w.write("into", "early", "1\n")
	w.fork("x")
	w.fork("y")
	w.write("x", "a", changed("three", "3"))
	w.clean("x", "into")
	w.write("x", "a", changed("three", "III"))
	w.clean("x", "into")
	w.wants("into", "a", changed("three", "III"))

	w.clean("into", "y") // what came of x
	w.wants("y", "a", changed("three", "III"))
	w.write("y", "a", changed("three", "three!"))
	w.clean("y", "into")
	w.wants("into", "a", changed("three", "three!"))

	_, err := snapshot.Restore(w.box("into"), "@{1}", false)
	must(t, err)
	w.wants("into", "a", changed("three", "III"))
	w.clean("y", "into")
	w.wants("into", "a", changed("three", "three!"))

	// Siblings too.
	w.write("x", "b", "of x\n")
	w.clean("x", "y")
	w.wants("y", "b", "of x\n")
	w.wants("y", "a", changed("three", "three!"))
}

// A part that was merged is no base of later merges.
func TestAPartIsNoBase(t *testing.T) {
	w := newTest(t, source)
	w.write("into", "early", "1\n")
	w.fork("x")
	w.write("x", "a", changed("one", "1"))
	w.write("x", "b", "of x\n")
	w.merge("x", "into", conflict.Merge, "a")
	w.wants("into", "b", "b\n")
	w.clean("x", "into")
	w.wants("into", "b", "of x\n")
}

// A fork whose layers were merged into one is still compared with what it began with.
func TestASquashedForkHasItsBase(t *testing.T) {
	for _, squashed := range []string{"x", "into", "both"} {
		w := newTest(t, source)
		w.write("into", "a", changed("one", "1"))
		w.write("into", "early", "1\n")
		w.fork("x")
		for _, box := range []string{"x", "into"} {
			if squashed == box || squashed == "both" {
				w.write(box, "bin", "dropped")
				w.in(box, func(s *layer.Stack) { must(t, s.Drop(at("bin"))) })
			}
		}
		w.write("x", "a", changed("one", "I"))
		w.remove("x", "early")
		w.clean("x", "into")
		w.wants("into", "a", changed("one", "I"))
		w.wants("into", "early", "")
	}
}

// A fork whose changes were discarded has removed those with which it began.
func TestADiscardedForkHasItsBase(t *testing.T) {
	w := newTest(t, source)
	w.write("into", "early", "1\n")
	w.fork("x")
	w.fork("y")
	w.in("x", func(s *layer.Stack) { must(t, s.Reset()) })
	must(t, snapshot.Sweep(w.home))
	w.write("x", "b", "x\n")
	for _, box := range []string{"into", "y"} {
		w.clean("x", box)
		w.wants(box, "early", "")
		w.wants(box, "b", "x\n")
	}
}

// What was removed and made again is merged too, also if its earlier content was not kept.
func TestAFileThatWasMadeAgain(t *testing.T) {
	w := newTest(t, source)
	w.fork("x")
	w.remove("x", "a")
	_, err := snapshot.Take(w.box("x"), snapshot.Snapshot{}, snapshot.FreezeStopped(w.box("x")))
	must(t, err)
	w.write("x", "a", changed("one", "1"))
	w.write("into", "a", changed("five", "5"))
	w.clean("x", "into")
	w.wants("into", "a", strings.Replace(changed("one", "1"), "five", "5", 1))
}

// A fork of a removed sandbox, and a sandbox that is none, can be merged.
func TestSandboxesWithoutACommonLayer(t *testing.T) {
	w := newTest(t, source)
	w.create("other")
	w.write("into", "a", changed("one", "1"))
	w.write("other", "a", changed("five", "5"))
	w.write("other", "b", "B\n")
	w.clean("other", "into")
	w.wants("into", "a", strings.Replace(changed("one", "1"), "five", "5", 1))
	must(t, w.home.Remove("other"))
	must(t, snapshot.Sweep(w.home))
	w.fork("x")
	w.write("x", "b", "x\n")
	w.clean("x", "into")
	w.wants("into", "b", "x\n")
}

// Directories move, and types change, as a whole.
func TestDirectoriesAndTypes(t *testing.T) {
	w := newTest(t, source)
	w.fork("x")
	w.in("x", func(s *layer.Stack) {
		_, err := s.Rename(at("d"), at("moved"), layer.RenameOptions{})
		must(t, err)
	})
	w.remove("x", "b")
	w.write("x", "b/in/it", "deep\n")
	w.remove("x", "a")
	w.symlink("x", "b", "a")
	w.write("into", "mine", "mine\n")
	w.clean("x", "into")
	for name, want := range map[string]string{
		"d": "", "d/e": "", "moved/e": "e\n", "moved/f": "f\n", "b": "dir", "b/in/it": "deep\n", "a": "-> b", "mine": "mine\n",
	} {
		w.wants("into", name, want)
	}
	w.remove("x", "b/in/it")
	w.remove("x", "b/in")
	w.remove("x", "b")
	w.write("x", "b", "a file again\n")
	w.clean("x", "into")
	w.wants("into", "b", "a file again\n")
}

// A later apply compares the source with what the first of the two sandboxes saw of it.
func TestTheOlderBaseStays(t *testing.T) {
	for _, early := range []string{"x", "into"} {
		w := newTest(t, source)
		w.fork("x")
		late := map[string]string{"x": "into", "into": "x"}[early]
		w.write(early, "a", changed("one", "ONE"))
		w.write("x", "bin", "x only\n")
		host := filepath.Join(w.source, "a")
		must(t, os.WriteFile(host, []byte(changed("five", "5")), 0o644))
		w.in(late, func(s *layer.Stack) {
			f, _, err := s.Open(at("a"), true)
			must(t, err)
			f.Close()
		})
		w.write(late, "a", strings.Replace(changed("five", "5"), "three", "3", 1))
		w.clean("x", "into")
		w.wants("into", "a", "ONE\ntwo\n3\nfour\n5\n")
		if got := w.baseOf("into", "a"); got != lines {
			t.Errorf("%s was early: the base is %q", early, got)
		}
		if got := w.baseOf("into", "bin"); got != source["bin"] {
			t.Errorf("the base of what only x changed is %q", got)
		}
	}
}

// baseOf returns the content that a sandbox has recorded of a file of the source.
func (w *world) baseOf(box, name string) (content string) {
	w.t.Helper()
	w.in(box, func(s *layer.Stack) {
		bases, err := s.Bases()
		must(w.t, err)
		base := bases[at(name)]
		f, err := s.BaseContent(&base)
		must(w.t, err)
		defer f.Close()
		text, err := io.ReadAll(f)
		must(w.t, err)
		content = string(text)
	})
	return content
}

// What a merge brings is a change of the sandbox like its own: added, modified and deleted.
func TestMergedChangesAreOrdinaryOnes(t *testing.T) {
	w := newTest(t, source)
	w.fork("x")
	w.write("x", "a", changed("one", "1"))
	w.remove("x", "b")
	w.write("x", "new", "new\n")
	w.clean("x", "into")
	work, err := changes.OpenToRead(w.box("into"))
	must(t, err)
	defer work.Close()
	list, err := work.Changes(nil, false)
	must(t, err)
	got := map[vpath.Path]string{}
	for _, c := range list {
		if !c.Fresh {
			t.Errorf("%s does not fit the source", c.Path)
		}
		got[c.Path] = c.Status.String()
	}
	if len(got) != 3 || got["/a"] != "M" || got["/b"] != "D" || got["/new"] != "A" {
		t.Errorf("the changes are %v", got)
	}
}

// Own entries and sockets stay, and are named.
func TestWhatIsNeverMerged(t *testing.T) {
	w := newTest(t, source)
	w.fork("x")
	w.in("x", func(s *layer.Stack) {
		f, _, err := s.Create(vpath.Root.Child(vpath.OwnName("b")), 0o600)
		must(t, err)
		f.Close()
		_, err = s.Mknod(at("socket"), 0o140600)
		must(t, err)
		_, err = s.Mknod(at("fifo"), 0o010600)
		must(t, err)
	})
	r := w.clean("x", "into")
	if len(r.Left) != 2 || r.Left[0].Path != "/b" || r.Left[1].Path != "/socket" || r.Changed() != 1 {
		t.Errorf("%+v", r)
	}
	w.wants("into", "b", "b\n")
}

func TestWhatCannotBeMerged(t *testing.T) {
	w := newTest(t, source)
	w.fork("x")
	for what, c := range map[string]struct {
		change func(*merge.Options)
		into   string
		kind   errdefs.Kind
	}{
		"a sandbox into itself":      {func(*merge.Options) {}, "x", errdefs.Invalid},
		"a snapshot that is none":    {func(o *merge.Options) { o.Snapshot = "s9" }, "into", errdefs.NotFound},
		"a path without a change":    {func(o *merge.Options) { o.Paths = []vpath.Path{"/a"} }, "into", errdefs.NotFound},
		"a resolution of an apply":   {func(o *merge.Options) { o.Resolve = conflict.Overwrite }, "into", errdefs.Invalid},
		"a sandbox with a clean git": {func(*merge.Options) {}, "clean", errdefs.Precondition},
	} {
		if c.into == "clean" {
			w.create("clean")
			must(t, w.box("clean").Update(func(r *recordOf) error { r.Git = "clean:50"; return nil }))
		}
		o := merge.Options{}
		c.change(&o)
		if _, err := w.tryMerge(o, "x", c.into); !errdefs.Is(err, c.kind) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
