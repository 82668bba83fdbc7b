package supervise

import (
	"errors"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/fault"
)

func TestWithinWaitsForAStepAndNotForEver(t *testing.T) {
	failed := errors.New("failed")
	if err := within(time.Hour, func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("got %v, want the step's error", err)
	}
	never := make(chan struct{})
	defer close(never)
	if err := within(time.Millisecond, func() error { <-never; return nil }); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a step that hangs: got %v, want Unavailable", err)
	}
}
