package apply_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
)

// What a killed apply has merged is not merged again: the lines would be there twice.
func TestAKilledMergeIsNotRepeated(t *testing.T) {
	for name, next := range map[string]func(t *testing.T, b *bench){
		"by the next apply": func(t *testing.T, b *bench) {
			r := b.apply()
			if len(r.Paths) != 1 || r.Paths[0].Path != "/other" {
				t.Errorf("the next apply has %+v, want only /other", r.Paths)
			}
		},
		"after a discard of something else": func(t *testing.T, b *bench) {
			if _, err := apply.Discard(b.box, apply.DiscardOptions{Paths: []vpath.Path{"/other"}}); err != nil {
				t.Fatal(err)
			}
			if _, err := apply.Changes(t.Context(), b.box, apply.Options{}); err != nil {
				t.Fatal(err)
			}
		},
		"in a dry run": func(t *testing.T, b *bench) {
			r, err := apply.Changes(t.Context(), b.box, apply.Options{DryRun: true})
			if p := resultAt(r, "/f"); err != nil || p.Outcome != apply.Present {
				t.Errorf("%v, %+v, want /f present", err, r.Paths)
			}
			b.apply()
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, tree{"f": "b\n"})
			b.agent(func(a *agent) { a.write("/f", "b\nb\n"); a.write("/other", "new") })
			write(t, filepath.Join(b.dir, "f"), "a\nb\n")
			kill := func([]changes.Version) ([]vpath.Path, error) { return nil, errKilled }
			if _, err := apply.Changes(t.Context(), b.box, apply.Options{Paths: []vpath.Path{"/f"}, Drop: kill}); !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			wantFile(t, filepath.Join(b.dir, "f"), "a\nb\nb\n")
			next(t, b)
			wantFile(t, filepath.Join(b.dir, "f"), "a\nb\nb\n")
			if left := b.changes(); len(left) != 0 {
				t.Errorf("left %q", left)
			}
		})
	}
}

// A sandbox that writes on to a file while it is merged does not take the source's changes back
// with its next apply.
func TestASandboxThatWritesOnDuringAMerge(t *testing.T) {
	b := newBench(t, tree{"f": numbered(nil)})
	b.agent(func(a *agent) {
		a.write("/f", numbered(map[int]string{30: "thirty\n"}))
		write(t, filepath.Join(b.dir, "f"), numbered(map[int]string{5: "five\n"}))
		r, err := b.applyLive(a, placed, func(a *agent) { a.write("/f", numbered(map[int]string{20: "twenty\n", 30: "thirty\n"})) })
		if err != nil || len(r.Changed) != 1 {
			t.Fatalf("%v, %+v, want /f written again", err, r)
		}
	})
	wantFile(t, filepath.Join(b.dir, "f"), numbered(map[int]string{5: "five\n", 30: "thirty\n"}))
	b.apply()
	wantFile(t, filepath.Join(b.dir, "f"), numbered(map[int]string{5: "five\n", 20: "twenty\n", 30: "thirty\n"}))
}

// What a sandbox wrote while its file was merged has the old base, also after the apply is undone:
// with the restored file as its base it would take the person's change back.
func TestUndoOfAMergeDuringWhichTheSandboxWroteOn(t *testing.T) {
	b := newBench(t, tree{"f": numbered(nil)})
	b.agent(func(a *agent) {
		a.write("/f", numbered(map[int]string{30: "thirty\n"}))
		write(t, filepath.Join(b.dir, "f"), numbered(map[int]string{5: "five\n"}))
		if _, err := b.applyLive(a, placed, func(a *agent) { a.write("/f", numbered(map[int]string{20: "twenty\n", 30: "thirty\n"})) }); err != nil {
			t.Fatal(err)
		}
	})
	b.mustReverse(false)
	wantFile(t, filepath.Join(b.dir, "f"), numbered(map[int]string{5: "five\n"}))
	b.apply()
	wantFile(t, filepath.Join(b.dir, "f"), numbered(map[int]string{5: "five\n", 20: "twenty\n", 30: "thirty\n"}))
}

// The sandbox's next version of a merged file is made of the merged one, also after an undo.
func TestUndoOfAMergeAfterWhichTheSandboxWroteOn(t *testing.T) {
	b := newBench(t, tree{"f": numbered(nil)})
	b.agent(func(a *agent) { a.write("/f", numbered(map[int]string{30: "thirty\n"})) })
	write(t, filepath.Join(b.dir, "f"), numbered(map[int]string{5: "five\n"}))
	b.apply()
	all := numbered(map[int]string{5: "five\n", 20: "twenty\n", 30: "thirty\n"})
	b.agent(func(a *agent) { a.write("/f", all) })
	b.mustReverse(false)
	wantFile(t, filepath.Join(b.dir, "f"), numbered(map[int]string{5: "five\n"}))
	b.apply()
	wantFile(t, filepath.Join(b.dir, "f"), all)
}

// A failure that rolls a merge back leaves the sandbox's version with its base.
func TestAMergeThatIsRolledBackIsMergedAgain(t *testing.T) {
	for name, how := range map[string]conflict.Resolution{"merged": conflict.Merge, "overwritten": conflict.Theirs} {
		t.Run(name, func(t *testing.T) {
			old, mine, want := numbered(nil), numbered(map[int]string{5: "five\n"}), numbered(map[int]string{5: "five\n", 30: "thirty\n"})
			if how == conflict.Theirs {
				old, mine, want = old+"\x00", mine+"\x00", numbered(map[int]string{30: "thirty\n"})+"\x00"
			}
			b := newBench(t, tree{"f": old, "g": "1\n"})
			b.agent(func(a *agent) {
				a.write("/f", strings.Replace(old, "line 30\n", "thirty\n", 1))
				a.remove("/g") // after f
			})
			write(t, filepath.Join(b.dir, "f"), mine)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o := apply.Options{OnConflict: how, Progress: func(int, int) { cancel() }}
			if _, err := apply.Changes(ctx, b.box, o); !errdefs.Is(err, errdefs.Canceled) {
				t.Fatalf("%v, want it canceled after the first path", err)
			}
			wantFile(t, filepath.Join(b.dir, "f"), mine)
			r, err := apply.Changes(t.Context(), b.box, apply.Options{DryRun: true})
			if p := resultAt(r, "/f"); how == conflict.Merge && (err != nil || !p.Merged) || how == conflict.Theirs && p.Kind != conflict.Binary {
				t.Fatalf("%v, %+v: the source's change is no change any more", err, r.Paths)
			}
			if _, err := apply.Changes(t.Context(), b.box, apply.Options{OnConflict: how}); err != nil {
				t.Fatal(err)
			}
			wantFile(t, filepath.Join(b.dir, "f"), want)
		})
	}
}

// If the source changes again after the merge was made, the file is left as it is then.
func TestAMergeIsMadeOfTheSourceAsItIs(t *testing.T) {
	b := newBench(t, tree{"a": "1\n", "f": numbered(nil)})
	b.agent(func(a *agent) { a.write("/a", "2\n"); a.write("/f", numbered(map[int]string{30: "thirty\n"})) })
	write(t, filepath.Join(b.dir, "f"), numbered(map[int]string{5: "five\n"}))
	later := numbered(map[int]string{6: "six\n"})
	r, err := apply.Changes(t.Context(), b.box, apply.Options{Progress: func(tried, _ int) {
		if tried == 1 {
			write(t, filepath.Join(b.dir, "f"), later)
		}
	}})
	if p := resultAt(r, "/f"); !errdefs.Is(err, errdefs.Precondition) || p.Kind != conflict.ChangedMeanwhile || p.Merged {
		t.Errorf("%v, %+v, want a conflict", err, r.Paths)
	}
	wantFile(t, filepath.Join(b.dir, "f"), later)
	b.apply()
	wantFile(t, filepath.Join(b.dir, "f"), numbered(map[int]string{6: "six\n", 30: "thirty\n"}))
}

// The delta keeps what is applied to another directory: a second apply there must not merge again.
func TestTextsAreMergedElsewhereOnlyIfAsked(t *testing.T) {
	b := newBench(t, tree{"f": numbered(nil)})
	b.agent(func(a *agent) { a.write("/f", numbered(map[int]string{30: "thirty\n"})) })
	other := t.TempDir()
	build(t, other, tree{"f": numbered(map[int]string{5: "five\n"})})
	to, err := apply.ResolveTarget(b.box, other)
	if err != nil {
		t.Fatal(err)
	}
	r, err := apply.Changes(t.Context(), b.box, apply.Options{To: to})
	if p := resultAt(r, "/f"); !errdefs.Is(err, errdefs.Precondition) || p.Kind != conflict.Text {
		t.Errorf("%v, %+v, want a conflict", err, r.Paths)
	}
	r, err = apply.Changes(t.Context(), b.box, apply.Options{To: to, OnConflict: conflict.Theirs})
	if p := resultAt(r, "/f"); err != nil || !p.Merged {
		t.Errorf("%v, %+v, want it merged", err, r.Paths)
	}
	wantFile(t, filepath.Join(other, "f"), numbered(map[int]string{5: "five\n", 30: "thirty\n"}))
	wantFile(t, filepath.Join(b.dir, "f"), numbered(nil))
}
