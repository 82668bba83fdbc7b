package merge_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/merge"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
	"github.com/agentfense/agentfense/internal/view/policy"
)

const lines = "one\ntwo\nthree\nfour\nfive\n"

var source = map[string]string{"a": lines, "b": "b\n", "bin": "x\x00y", "d/e": "e\n", "d/f": "f\n", "r/.git/config": lines}

func kinds(r merge.Result) map[string]conflict.Kind {
	found := map[string]conflict.Kind{}
	for _, c := range r.Conflicts {
		found[c.Path.Rel()] = c.Kind
	}
	return found
}

// What only the fork has changed comes as it is; what both changed in a text is merged.
func TestChangesOfAForkComeIntoTheSandbox(t *testing.T) {
	w := newTest(t, source)
	w.write("into", "early", "before the fork\n")
	w.fork("fork")
	w.write("into", "a", strings.Replace(lines, "one", "ONE", 1))
	w.write("into", "mine", "mine\n")
	w.write("fork", "a", strings.Replace(lines, "five", "FIVE", 1))
	w.write("fork", "early", "changed\n")
	w.write("fork", "n/e/w", "new\n")
	w.remove("fork", "b")
	w.remove("fork", "d/e")
	w.symlink("fork", "mine", "link")
	w.chmod("fork", "bin", 0o755)
	r := w.merge("fork", "into", conflict.Merge)
	if len(r.Conflicts) > 0 || r.Kept.Number == 0 {
		t.Fatalf("%+v", r)
	}
	status := map[string]string{}
	for _, p := range r.Paths {
		status[p.Path.Rel()] = p.Status.String()
		if p.Merged != (p.Path.Rel() == "a") {
			t.Errorf("%s: merged is %v", p.Path, p.Merged)
		}
	}
	want := map[string]string{"a": "M", "early": "M", "n": "A", "n/e": "A", "n/e/w": "A", "b": "D", "d/e": "D", "link": "A", "bin": "M"}
	if diff := cmp.Diff(want, status); diff != "" {
		t.Error(diff)
	}
	for name, want := range map[string]string{
		"a": "ONE\ntwo\nthree\nfour\nFIVE\n", "early": "changed\n", "n/e/w": "new\n", "b": "", "d/e": "", "d/f": "f\n",
		"link": "-> mine", "mine": "mine\n", "bin": "x\x00y",
	} {
		if got := w.shows("into", name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if again := w.merge("fork", "into", conflict.Merge); len(again.Paths)+len(again.Conflicts) > 0 {
		t.Errorf("a second merge has something to do: %+v", again)
	}
}

// A fork that removes what the sandbox had made has removed it, also if the source has made an
// entry there since.
func TestARemovalCountsWhereTheSourceMadeTheSame(t *testing.T) {
	w := newTest(t, source)
	for _, name := range []string{"edited", "removed", "dir/f"} {
		w.write("into", name, "the sandbox's "+name)
	}
	w.fork("fork")
	must(t, os.Mkdir(filepath.Join(w.source, "dir"), 0o755))
	for _, name := range []string{"edited", "removed", "dir/f"} {
		must(t, os.WriteFile(filepath.Join(w.source, name), []byte("a person's\n"), 0o644))
	}
	w.remove("into", "edited")
	w.write("fork", "edited", "changed\n")
	r := w.merge("fork", "into", conflict.Merge)
	if got, want := kinds(r), map[string]conflict.Kind{"edited": conflict.DeleteModify}; !cmp.Equal(got, want) {
		t.Errorf("conflicts %v, want %v", got, want)
	}
	for _, name := range []string{"removed", "dir/f", "dir"} {
		w.remove("fork", name)
	}
	if r := w.merge("fork", "into", conflict.Merge, "removed", "dir"); len(r.Conflicts) > 0 {
		t.Errorf("%+v", r.Conflicts)
	}
	for _, name := range []string{"edited", "removed", "dir"} {
		if got := w.shows("into", name); got != "" {
			t.Errorf("%s is %q, want nothing", name, got)
		}
	}
}

// Each kind of conflict is named, and nothing changes at all.
func TestConflictsChangeNothing(t *testing.T) {
	change := func(old, new string) string { return strings.Replace(lines, old, new, 1) }
	for name, c := range map[string]struct {
		ours, theirs func(w *world)
		path         string
		kind         conflict.Kind
	}{
		"text": {
			func(w *world) { w.write("into", "a", change("two", "2")) },
			func(w *world) { w.write("fork", "a", change("two", "II")) }, "a", conflict.Text,
		},
		"binary": {
			func(w *world) { w.write("into", "bin", "x\x001") },
			func(w *world) { w.write("fork", "bin", "x\x002") }, "bin", conflict.Binary,
		},
		"modify, and delete": {
			func(w *world) { w.write("into", "b", "B\n") },
			func(w *world) { w.remove("fork", "b") }, "b", conflict.DeleteModify,
		},
		"delete, and modify": {
			func(w *world) { w.remove("into", "b") },
			func(w *world) { w.write("fork", "b", "B\n") }, "b", conflict.DeleteModify,
		},
		"rename against edit": {
			func(w *world) { w.write("into", "b", "B\n") },
			func(w *world) { w.remove("fork", "b"); w.write("fork", "moved", "b\n") }, "b", conflict.RenameEdit,
		},
		"type": {
			func(w *world) { w.write("into", "b", "B\n") },
			func(w *world) { w.remove("fork", "b"); w.symlink("fork", "a", "b") }, "b", conflict.TypeChange,
		},
		"two links": {
			func(w *world) { w.symlink("into", "a", "l") },
			func(w *world) { w.symlink("fork", "b", "l") }, "l", conflict.BothAdded,
		},
		"two new files": {
			func(w *world) { w.write("into", "new", "1\n") },
			func(w *world) { w.write("fork", "new", "2\n") }, "new", conflict.BothAdded,
		},
		"mode": {
			func(w *world) { w.chmod("into", "b", 0o700) },
			func(w *world) { w.chmod("fork", "b", 0o755) }, "b", conflict.Mode,
		},
		"a file in place of a directory with another change": {
			func(w *world) { w.write("into", "d/new", "1\n") },
			func(w *world) {
				w.remove("fork", "d/e")
				w.remove("fork", "d/f")
				w.remove("fork", "d")
				w.write("fork", "d", "file\n")
			},
			"d", conflict.TypeChange,
		},
		"a file in a directory that became a file": {
			func(w *world) {
				w.remove("into", "d/e")
				w.remove("into", "d/f")
				w.remove("into", "d")
				w.write("into", "d", "file\n")
			},
			func(w *world) { w.write("fork", "d/new", "1\n") },
			"d/new", conflict.Directory,
		},
		"a git file": {
			func(w *world) { w.write("into", "r/.git/config", change("one", "1")) },
			func(w *world) { w.write("fork", "r/.git/config", change("five", "5")) },
			"r/.git/config", conflict.Binary,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTest(t, source)
			w.fork("fork")
			c.ours(w)
			c.theirs(w)
			w.write("fork", "other", "other\n")
			r := w.merge("fork", "into", conflict.Merge)
			if diff := cmp.Diff(map[string]conflict.Kind{c.path: c.kind}, kinds(r)); diff != "" {
				t.Error(diff, r)
			}
			if w.shows("into", "other") != "" || r.Kept.Number != 0 {
				t.Error("something was merged")
			}
			before := w.shows("into", c.path)
			w.merge("fork", "into", conflict.Ours)
			if got := w.shows("into", c.path); got != before && c.kind != conflict.Text && c.kind != conflict.BothAdded {
				t.Errorf("with ours it is %q, want %q", got, before)
			}
			if got := w.shows("into", "other"); got != "other\n" {
				t.Errorf("with ours the rest is missing: %q", got)
			}
		})
	}
}

func TestResolutionsOfAText(t *testing.T) {
	for resolve, want := range map[conflict.Resolution]string{
		conflict.Ours:    "ONE\n2\nthree\nfour\nFIVE\n",
		conflict.Theirs:  "ONE\nII\nthree\nfour\nFIVE\n",
		conflict.Markers: "ONE\n<<<<<<< into\n2\n=======\nII\n>>>>>>> fork\nthree\nfour\nFIVE\n",
	} {
		w := newTest(t, map[string]string{"a": "one\n-\n-\ntwo\n-\n-\nthree\nfour\nfive\n"})
		want = strings.NewReplacer("ONE\n", "ONE\n-\n-\n", "three", "-\n-\nthree").Replace(want)
		w.fork("fork")
		w.write("into", "a", "ONE\n-\n-\n2\n-\n-\nthree\nfour\nfive\n")
		w.write("fork", "a", "one\n-\n-\nII\n-\n-\nthree\nfour\nFIVE\n")
		r := w.merge("fork", "into", resolve)
		if got := w.shows("into", "a"); got != want || len(r.Paths) != 1 || r.Paths[0].Resolved != conflict.Text {
			t.Errorf("resolved by %d: %q, want %q; %+v", resolve, got, want, r)
		}
	}
}

// Their version of each other kind of conflict replaces ours only when asked.
func TestTheirsReplacesOurs(t *testing.T) {
	w := newTest(t, source)
	w.fork("fork")
	w.write("into", "b", "B\n")
	w.write("into", "bin", "x\x001")
	w.remove("into", "a")
	w.remove("fork", "b")
	w.write("fork", "bin", "x\x002")
	w.chmod("fork", "bin", 0o755)
	w.write("fork", "a", "A\n")
	if r := w.merge("fork", "into", conflict.Markers); len(r.Conflicts) != 3 {
		t.Errorf("markers resolve what is no text: %+v", r)
	}
	w.merge("fork", "into", conflict.Theirs)
	for name, want := range map[string]string{"a": "A\n", "b": "", "bin": "x\x002"} {
		if got := w.shows("into", name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// Nothing comes to a path that a policy does not let either sandbox write, and no directory goes
// that has something which a policy hides.
func TestAMergeWidensNothing(t *testing.T) {
	rule := func(pattern string, p policy.Permission) policy.Rule {
		return policy.Rule{Pattern: pattern, Permission: p}
	}
	t.Run("into a narrow sandbox", func(t *testing.T) {
		w := newTest(t, source)
		w.create("narrow", rule("/b", policy.Read), rule("/d/e", policy.None))
		w.create("wide")
		w.write("wide", "b", "B\n")
		w.write("wide", "d/e", "E\n")
		w.write("wide", "a", "A\n")
		want := map[string]conflict.Kind{"b": conflict.Refused, "d/e": conflict.Hidden}
		for _, resolve := range []conflict.Resolution{conflict.Merge, conflict.Theirs, conflict.Ours, conflict.Markers} {
			if diff := cmp.Diff(want, kinds(w.merge("wide", "narrow", resolve))); diff != "" {
				t.Error(diff)
			}
		}
		if w.shows("narrow", "a") != lines {
			t.Error("a part was merged")
		}
		if r := w.merge("wide", "narrow", conflict.Merge, "a"); r.Changed() != 1 || w.shows("narrow", "a") != "A\n" {
			t.Errorf("the permitted path alone: %+v", r)
		}
	})
	t.Run("of a fork that may no longer write it", func(t *testing.T) {
		w := newTest(t, source)
		w.create("fork")
		w.write("fork", "b", "B\n")
		must(t, w.box("fork").Update(func(r *recordOf) error {
			r.SetRules(append(r.Rules, rule("/b", policy.Read)), "test")
			return nil
		}))
		if diff := cmp.Diff(map[string]conflict.Kind{"b": conflict.Refused}, kinds(w.merge("fork", "into", conflict.Theirs))); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("a directory with an entry that the fork does not see", func(t *testing.T) {
		for i := range 4 {
			replaced, changed := i%2 > 0, i > 1
			w := newTest(t, source)
			if changed {
				w.write("into", "d/f", "f\n")
			}
			w.fork("fork", rule("/d/f", policy.None))
			w.remove("fork", "d/e")
			w.rmdirSeeing("fork", "d", "e")
			if replaced {
				w.write("fork", "d", "file\n")
			}
			if diff := cmp.Diff(map[string]conflict.Kind{"d": conflict.HiddenBelow}, kinds(w.merge("fork", "into", conflict.Merge))); diff != "" {
				t.Error(diff)
			}
			r := w.merge("fork", "into", conflict.Theirs)
			if w.shows("into", "d/f") != "f\n" || replaced != (len(r.Conflicts) > 0) {
				t.Errorf("replaced %v: %+v", replaced, r)
			}
			w.merge("fork", "into", conflict.Ours)
			if w.shows("into", "d/f") != "f\n" || w.shows("into", "d/e") != "" {
				t.Errorf("replaced %v, changed %v: ours", replaced, changed)
			}
		}
	})
}

// A merge has no more room than the sandbox has beside what its snapshots keep.
func TestAMergeCountsWhatSnapshotsKeep(t *testing.T) {
	const size = 600 << 10
	w := newTest(t, nil)
	w.fork("fork")
	w.write("fork", "new", strings.Repeat("x", size))
	into := w.box("into")
	must(t, into.Update(func(r *record.Record) error {
		r.Limits.DiskBytes = 1 << 20
		return nil
	}))
	take := func() snapshot.Snapshot {
		s, err := snapshot.Take(into, snapshot.Snapshot{}, snapshot.FreezeStopped(into))
		must(t, err)
		return s
	}
	empty := take()
	w.write("into", "old", strings.Repeat("x", size))
	full := take()
	r, err := snapshot.Restore(into, empty.Ref(), false)
	must(t, err)
	if _, err := w.tryMerge(merge.Options{}, "fork", "into"); !errdefs.Is(err, errdefs.Exhausted) {
		t.Fatalf("a merge beside what a snapshot keeps: %v, want Exhausted", err)
	}
	if w.shows("into", "new") != "" {
		t.Error("the refused merge has changed the sandbox")
	}
	refs := []string{full.Ref()}
	if r.Kept.Number != 0 && r.Kept.Number != full.Number {
		refs = append(refs, r.Kept.Ref())
	}
	must(t, snapshot.Remove(into, refs...))
	if w.merge("fork", "into", conflict.Merge); len(w.shows("into", "new")) != size {
		t.Error("the merge did not bring the file")
	}
}
