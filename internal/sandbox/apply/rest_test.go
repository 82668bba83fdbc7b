package apply_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
)

// What a running sandbox removes while an apply makes it in the source stays removed for the
// sandbox, also if the apply is killed after its commit.
func TestAKilledApplyKeepsWhatTheSandboxRemovedMeanwhile(t *testing.T) {
	b := newBench(t, tree{"f": "1"})
	b.agent(func(a *agent) {
		a.mkdir("/a")
		a.mkdir("/b")
		a.write("/a/f", "1")
		drop := func(v []changes.Version) ([]vpath.Path, error) { return changes.DropVersions(a.stack, v) }
		killed := errors.New("killed")
		_, err := apply.Changes(t.Context(), b.box, apply.Options{
			Drop: func([]changes.Version) ([]vpath.Path, error) { return nil, killed },
			Progress: func(tried, _ int) {
				if tried == 1 { // /a is made, /b is not
					a.check(a.stack.Rmdir("/b", nil))
				}
			},
		})
		if !errors.Is(err, killed) {
			t.Fatalf("Changes = %v, want %v", err, killed)
		}
		told, err := filepath.Glob(filepath.Join(b.home.Dir(), "history", "*", "*", "rest"))
		if err != nil || len(told) != 1 {
			t.Fatalf("what remains to be done is in %q: %v", told, err)
		}
		a.check(os.Rename(told[0], filepath.Join(filepath.Dir(told[0]), "untold"))) // as if killed before
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
