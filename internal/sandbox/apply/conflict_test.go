package apply_test

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func TestApplyRefusesWhatChangedInTheSource(t *testing.T) {
	touch := func(t *testing.T, path string) {
		t.Helper()
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	write := func(t *testing.T, path, content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name   string
		source tree
		agent  func(a *agent)
		person func(t *testing.T, dir string)
		path   string
		want   apply.Outcome
	}{
		{
			"a file edited in both",
			tree{"f": "old"},
			func(a *agent) { a.write("/f", "new") },
			func(t *testing.T, dir string) { write(t, dir+"/f", "mine") }, "/f", apply.Conflict,
		},
		{
			"a file edited here and deleted there",
			tree{"f": "old"},
			func(a *agent) { a.remove("/f") },
			func(t *testing.T, dir string) { write(t, dir+"/f", "mine") }, "/f", apply.Conflict,
		},
		{
			"a file deleted here and edited there",
			tree{"f": "old"},
			func(a *agent) { a.write("/f", "new") },
			func(t *testing.T, dir string) { os.Remove(dir + "/f") }, "/f", apply.Conflict,
		},
		{
			"a file made in both",
			tree{},
			func(a *agent) { a.write("/f", "new") },
			func(t *testing.T, dir string) { write(t, dir+"/f", "mine") }, "/f", apply.Conflict,
		},
		{
			"a directory made where there is a file",
			tree{},
			func(a *agent) { a.mkdir("/f") },
			func(t *testing.T, dir string) { write(t, dir+"/f", "mine") }, "/f", apply.Conflict,
		},
		{
			"a file made in a directory that was deleted",
			tree{"d/": ""},
			func(a *agent) { a.write("/d/f", "new") },
			func(t *testing.T, dir string) { os.Remove(dir + "/d") }, "/d/f", apply.Conflict,
		},
		{
			"a directory replaced by a symbolic link",
			tree{"d/f": "old", "e/f": "old"},
			func(a *agent) { a.write("/d/f", "new") },
			func(t *testing.T, dir string) { os.Rename(dir+"/d", dir+"/gone"); os.Symlink("e", dir+"/d") }, "/d/f", apply.Conflict,
		},
		{
			"a file edited in a directory that was deleted",
			tree{"d/f": "old"},
			func(a *agent) { a.removeAll("/d") },
			func(t *testing.T, dir string) { write(t, dir+"/d/f", "mine") }, "/d/f", apply.Conflict,
		},
		{
			"a mode changed in both",
			tree{"d/": ""},
			func(a *agent) { a.chmod("/d", 0o700) },
			func(t *testing.T, dir string) { os.Chmod(dir+"/d", 0o711) }, "/d", apply.Conflict,
		},
		{
			"a touched file is no conflict",
			tree{"f": "old"},
			func(a *agent) { a.write("/f", "new") },
			func(t *testing.T, dir string) { touch(t, dir+"/f") }, "/f", apply.Applied,
		},
		{
			"the same edit in both is no conflict",
			tree{"f": "old"},
			func(a *agent) { a.write("/f", "new") },
			func(t *testing.T, dir string) { write(t, dir+"/f", "new") }, "/f", apply.Present,
		},
		{
			"a deletion in both is no change",
			tree{"f": "old"},
			func(a *agent) { a.remove("/f") },
			func(t *testing.T, dir string) { os.Remove(dir + "/f") }, "/f", "",
		},
		{
			"a directory made in both is no conflict",
			tree{},
			func(a *agent) { a.mkdir("/d"); a.write("/d/f", "new") },
			func(t *testing.T, dir string) { os.Mkdir(dir+"/d", 0o755) }, "/d", apply.Present,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tt.source)
			b.agent(func(a *agent) {
				tt.agent(a)
				a.write("/other", "new")
			})
			tt.person(t, b.dir)
			before := snapshot(t, b.dir)
			r, err := apply.Changes(t.Context(), b.box, apply.Options{})
			if got := outcomes(r)[tt.path]; got != tt.want {
				t.Errorf("outcome = %q, want %q", got, tt.want)
			}
			if tt.want != apply.Conflict {
				if err != nil || len(b.changes()) != 0 {
					t.Errorf("Apply = %v, left %q", err, b.changes())
				}
				return
			}
			if !errdefs.Is(err, errdefs.Precondition) {
				t.Errorf("Apply = %v, want Precondition", err)
			}
			if diff := cmp.Diff(before, snapshot(t, b.dir)); diff != "" {
				t.Errorf("a refused apply changed the source:\n%s", diff)
			}
			b.apply("/other")
			if _, err := os.Stat(filepath.Join(b.dir, "other")); err != nil {
				t.Errorf("the path without conflict was not applied by itself: %v", err)
			}
		})
	}
}

func TestApplyLeavesAloneWhatTheSandboxNeverSaw(t *testing.T) {
	hide := []policy.Rule{{Pattern: "**", Permission: policy.Write}, {Pattern: "secret*", Permission: policy.None, Priority: 10}}
	source := tree{"d/secret": "1", "d/e/secret.key": "2", "d/e/seen": "3", "d/f/g": "4"}
	kept := tree{"d/": "", "d/secret": "1", "d/e/": "", "d/e/secret.key": "2"}
	t.Run("in a directory that it deleted", func(t *testing.T) {
		b := newBench(t, source, hide...)
		b.agent(func(a *agent) { a.removeAll("/d") })
		if got, want := b.changes(), []string{"D /d/e/seen", "D /d/f/g"}; !cmp.Equal(got, want) {
			t.Errorf("diff = %q, want %q", got, want)
		}
		r := b.apply()
		if diff := cmp.Diff(kept, snapshot(t, b.dir)); diff != "" {
			t.Errorf("source (-want +got):\n%s", diff)
		}
		if got := outcomes(r); got["/d"] != apply.Kept || got["/d/f"] != apply.Applied || got["/d/secret"] != apply.Kept {
			t.Errorf("outcomes = %v", got)
		}
		if left := b.changes(); len(left) != 0 {
			t.Errorf("left %q", left)
		}
	})
	t.Run("in a directory that it made again", func(t *testing.T) {
		b := newBench(t, source, hide...)
		b.agent(func(a *agent) { a.removeAll("/d"); a.mkdir("/d"); a.write("/d/new", "5") })
		b.apply()
		want := tree{"d/new": "5"}
		maps.Copy(want, kept)
		if diff := cmp.Diff(want, snapshot(t, b.dir)); diff != "" {
			t.Errorf("source (-want +got):\n%s", diff)
		}
	})
	t.Run("in a directory that it replaced by a file, which is a conflict", func(t *testing.T) {
		b := newBench(t, source, hide...)
		b.agent(func(a *agent) { a.removeAll("/d"); a.write("/d", "file") })
		before := snapshot(t, b.dir)
		r, err := apply.Changes(t.Context(), b.box, apply.Options{})
		if !errdefs.Is(err, errdefs.Precondition) || outcomes(r)["/d"] != apply.Conflict {
			t.Errorf("Apply = %v, %v", outcomes(r), err)
		}
		if diff := cmp.Diff(before, snapshot(t, b.dir)); diff != "" {
			t.Errorf("source changed:\n%s", diff)
		}
	})
	t.Run("in a directory that it renamed", func(t *testing.T) {
		b := newBench(t, source, hide...)
		b.agent(func(a *agent) { a.rename("/d", "/n") })
		b.apply()
		want := tree{"n/": "", "n/e/": "", "n/e/seen": "3", "n/f/": "", "n/f/g": "4"}
		maps.Copy(want, kept)
		if diff := cmp.Diff(want, snapshot(t, b.dir)); diff != "" {
			t.Errorf("source (-want +got):\n%s", diff)
		}
	})
	t.Run("because it is newer", func(t *testing.T) {
		b := newBench(t, source)
		b.agent(func(a *agent) { a.removeAll("/d") })
		build(t, b.dir, tree{"d/e/newer": "mine"})
		b.apply()
		if diff := cmp.Diff(tree{"d/": "", "d/e/": "", "d/e/newer": "mine"}, snapshot(t, b.dir)); diff != "" {
			t.Errorf("source (-want +got):\n%s", diff)
		}
	})
	t.Run("because an earlier policy hid it", func(t *testing.T) {
		b := newBench(t, source)
		b.agent(func(a *agent) { a.write("/d/secret", "changed") })
		set := func(rules []policy.Rule) {
			t.Helper()
			if err := b.box.Update(func(r *record.Record) error { r.SetRules(rules, ""); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		all := b.box.Record().Rules
		set(hide)
		b.agent(func(a *agent) { a.removeAll("/d") })
		set(all)
		b.apply()
		if got := snapshot(t, b.dir); got["d/secret"] != "1" {
			t.Errorf("a hidden file was deleted: %q", got)
		}
	})
}

func TestApplyAsksThePolicyOfNow(t *testing.T) {
	b := newBench(t, tree{"a": "1", "b": "1", "c/": ""})
	b.agent(func(a *agent) { a.write("/a", "2"); a.remove("/b"); a.write("/c/f", "2"); a.mkdir("/c/d") })
	err := b.box.Update(func(r *record.Record) error {
		r.SetRules([]policy.Rule{{Pattern: "**", Permission: policy.Read}, {Pattern: "/c/f", Permission: policy.Write}}, "")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, b.dir)
	r, err := apply.Changes(t.Context(), b.box, apply.Options{})
	want := map[string]apply.Outcome{"/a": apply.Refused, "/b": apply.Refused, "/c/d": apply.Refused, "/c/f": apply.Skipped}
	if diff := cmp.Diff(want, outcomes(r)); diff != "" || !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("Apply = %v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff(before, snapshot(t, b.dir)); diff != "" {
		t.Errorf("a refused apply changed the source:\n%s", diff)
	}
	b.apply("/c/f")
	if got := snapshot(t, b.dir)["c/f"]; got != "2" {
		t.Errorf("c/f = %q", got)
	}
}
