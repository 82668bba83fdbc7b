package apply_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/sandbox/undo"
)

// What an undo takes out of the source is not lost, also if it is more than the history keeps: the
// sandbox has it again, or a redo brings it back.
func TestUndoOfMoreThanTheHistoryKeepsLosesNothing(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	for name, removed := range map[string]bool{"stopped": false, "removed": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			b.home.History.MaxBytesPerSource = 1 << 19
			b.agent(func(a *agent) { a.write("/f", large) })
			b.apply()
			h, entries := b.history()
			box := b.box
			if removed {
				box = nil
			}
			r, err := undo.Reverse(t.Context(), h, &entries[0], box, undo.Options{})
			if err != nil || r.GivenBack == removed {
				t.Fatalf("given back is %v, %v", r.GivenBack, err)
			}
			if len(snapshot(t, b.dir)) != 0 {
				t.Error("the undo has left the file")
			}
			if removed {
				b.mustReverse(true)
			} else {
				b.apply()
			}
			if !cmp.Equal(snapshot(t, b.dir), tree{"f": large}) {
				t.Error("the file is lost")
			}
		})
	}
}
