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

// TestABusyFileHidesNoOtherFailure has a file written again after the plan, when
// the directory is made, and something fail after it.
func TestABusyFileHidesNoOtherFailure(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name      string
		meanwhile func(b *bench) error
		drop      error
		is        func(error) bool
	}{
		{
			"another path",
			func(b *bench) error { return os.WriteFile(filepath.Join(b.dir, "z"), []byte("theirs"), 0o644) },
			nil,
			func(err error) bool { return errdefs.Is(err, errdefs.Precondition) },
		},
		{
			"what comes after all paths",
			func(*bench) error { return nil },
			broken,
			func(err error) bool { return errors.Is(err, broken) },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tree{"z": "1"})
			b.agent(func(a *agent) {
				a.mkdir("/d")
				a.write("/f", "now")
				a.write("/z", "2")
				o := apply.Options{
					Drop: func([]changes.Version) ([]vpath.Path, error) { return nil, tt.drop },
					Progress: func(tried, _ int) {
						if tried == 1 {
							a.write("/f", "later")
							a.check(tt.meanwhile(b))
						}
					},
				}
				r, err := apply.Changes(t.Context(), b.box, o)
				if errors.Is(err, apply.ErrBusy) || !tt.is(err) {
					t.Errorf("Apply = %v, want what else failed", err)
				}
				if got := outcomes(r)["/f"]; got != apply.Failed {
					t.Errorf("the busy file is %s", got)
				}
			})
		})
	}
}
