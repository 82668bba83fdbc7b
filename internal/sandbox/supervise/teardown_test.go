package supervise

import (
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
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

// A sandbox may end by itself while a command runs, as when the kernel kills its
// PID 1 for want of memory. Why the command ended is read from the sandbox's group
// and written into its audit log, both of which tearDown lets go of.
func TestTearDownWaitsForTheAnswersToCommands(t *testing.T) {
	sb := newSandbox(t)
	lock, err := sb.TryLock(record.PurposeSupervise)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := &supervisor{log: slog.New(slog.DiscardHandler), lock: lock, gone: make(chan struct{})}
		s.answered.L = &s.mu
		var ends [2]func()
		for i := range ends {
			ends[i] = s.beginAnswer()
		}
		var tearDown sync.WaitGroup
		tearDown.Go(s.tearDown)
		for i, end := range ends {
			synctest.Wait()
			select {
			case <-s.gone:
				t.Errorf("it did not wait for %d commands", len(ends)-i)
			default:
			}
			end()
		}
		tearDown.Wait()
	})
}
