package supervise

import (
	"errors"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

func TestWithinWaitsForAStepAndNotForEver(t *testing.T) {
	failed := errors.New("failed")
	if err := within(time.Hour, func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("got %v, want the step's error", err)
	}
	never := make(chan struct{})
	defer close(never)
	if err := within(time.Millisecond, func() error { <-never; return nil }); !errdefs.Is(err, errdefs.Unavailable) {
		t.Errorf("a step that hangs: got %v, want Unavailable", err)
	}
}
