package apply_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/undo"
)

// killedApply is an apply to a running sandbox that ends after its commit, as if it was killed.
func (b *bench) killedApply(progress func(tried, total int)) {
	b.t.Helper()
	killed := errors.New("killed")
	drop := func([]changes.Version) ([]vpath.Path, error) { return nil, killed }
	if _, err := apply.Changes(b.t.Context(), b.box, apply.Options{Drop: drop, Progress: progress}); !errors.Is(err, killed) {
		b.t.Fatalf("Changes = %v, want %v", err, killed)
	}
	told, err := filepath.Glob(filepath.Join(b.home.Dir(), "history", "*", "*", "rest"))
	if err != nil || len(told) != 1 {
		b.t.Fatalf("what remains to be done is in %q: %v", told, err)
	}
	if err := os.Rename(told[0], filepath.Join(filepath.Dir(told[0]), "untold")); err != nil {
		b.t.Fatal(err)
	}
}

// What a running sandbox removes while an apply makes it in the source stays removed for the
// sandbox, also if the apply is killed after its commit.
func TestAKilledApplyKeepsWhatTheSandboxRemovedMeanwhile(t *testing.T) {
	b := newBench(t, tree{"f": "1"})
	b.agent(func(a *agent) {
		a.mkdir("/a")
		a.mkdir("/b")
		a.write("/a/f", "1")
		b.killedApply(func(tried, _ int) {
			if tried == 1 { // /a is made, /b is not
				a.check(a.stack.Rmdir("/b", nil))
			}
		})
		drop := func(v []changes.Version) ([]vpath.Path, error) { return changes.DropVersions(a.stack, v) }
		if err := apply.RecoverSource(b.box, drop, nil); err != nil {
			t.Fatal(err)
		}
		r, err := apply.Changes(t.Context(), b.box, apply.Options{Drop: drop})
		if err != nil || outcomes(r)["/b"] != apply.Applied || len(r.Paths) != 1 {
			t.Errorf("Changes = %+v, %v, want the removal of /b", r, err)
		}
		if _, err := a.stack.Lookup("/b"); !errdefs.Is(err, errdefs.NotFound) {
			t.Errorf("the sandbox has /b again: %v", err)
		}
	})
}

// A transaction that is too old for the history is kept as long as something remains to be done of
// it in its sandbox.
func TestPruningKeepsWhatRemainsToBeDone(t *testing.T) {
	for _, tt := range []struct {
		name    string
		removed bool
		want    int // transactions after another apply
	}{
		{"while there is the sandbox", false, 2},
		{"but not after its removal", true, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tree{"f": "1"})
			b.agent(func(a *agent) { a.write("/f", "2") })
			b.killedApply(nil)
			if tt.removed {
				if err := b.home.Remove(b.box.Name()); err != nil {
					t.Fatal(err)
				}
			}
			b.home.History.Retention = time.Nanosecond
			other := &bench{t: t, home: b.home, dir: b.dir}
			var err error
			if other.box, err = b.home.Create(recordOf(t, b.home, b.dir, "other")); err != nil {
				t.Fatal(err)
			}
			other.agent(func(a *agent) { a.write("/g", "1") })
			other.apply()
			kept, err := filepath.Glob(filepath.Join(b.home.Dir(), "history", "*", "*", "journal"))
			if err != nil || len(kept) != tt.want {
				t.Errorf("the history keeps %q, %v, want %d", kept, err, tt.want)
			}
			if tt.removed {
				return
			}
			build(t, b.dir, tree{"f": "a person's"})
			if r := b.apply(); len(r.Paths) > 0 {
				t.Errorf("%v is applied again", r.Paths)
			}
			log, err := os.ReadFile(b.box.AuditPath())
			if n := bytes.Count(log, []byte(`"event":"applied"`)); err != nil || n != 2 { // the test has kept the first
				t.Errorf("the log has %d records of the apply, %v, want 2", n, err)
			}
		})
	}
}

// A damaged journal stops what needs it, and is named.
func TestADamagedRestIsNamed(t *testing.T) {
	for _, path := range []string{"/../f", "f", "/d//f"} {
		b := newBench(t, tree{"f": "1"})
		b.agent(func(a *agent) { a.write("/f", "2") })
		b.killedApply(nil)
		found, err := filepath.Glob(filepath.Join(b.home.Dir(), "history", "*", "*", "journal"))
		if err != nil || len(found) != 1 {
			t.Fatalf("the journals are %q: %v", found, err)
		}
		text, err := os.ReadFile(found[0])
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.Replace(text, []byte(`"versions":[{"path":"/f"`), []byte(`"versions":[{"path":"`+path+`"`), 1)
		if err := os.WriteFile(found[0], text, 0o600); err != nil {
			t.Fatal(err)
		}
		err = apply.RecoverSource(b.box, nil, nil)
		if !errdefs.Is(err, errdefs.Precondition) || !strings.Contains(err.Error(), filepath.Dir(found[0])) {
			t.Errorf("a rest with the path %q: %v, want an error that names the journal", path, err)
		}
	}
}

// An apply to a running sandbox that stops before the delta drops the changes has not failed, and
// neither has a redo.
func TestAnApplyWhileTheSandboxStops(t *testing.T) {
	b := newBench(t, tree{"f": "1"})
	b.agent(func(a *agent) { a.write("/f", "2") })
	gone := func([]changes.Version) ([]vpath.Path, error) { return nil, changes.ErrStopped }
	r, err := apply.Changes(t.Context(), b.box, apply.Options{Drop: gone})
	if err != nil || outcomes(r)["/f"] != apply.Applied || r.Transaction == "" {
		t.Errorf("Changes = %+v, %v", r, err)
	}
	b.mustReverse(false)
	h, entries := b.history()
	redo, err := undo.Reverse(t.Context(), h, &entries[len(entries)-1], b.box, undo.Options{Drop: gone})
	if err != nil || redo.ID == "" || snapshot(t, b.dir)["f"] != "2" {
		t.Errorf("redo = %+v, %v", redo, err)
	}
	if changed, err := review.HasChanges(b.box); err != nil || changed {
		t.Errorf("the sandbox has changes: %t, %v", changed, err)
	}
}
