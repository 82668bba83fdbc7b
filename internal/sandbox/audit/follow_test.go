package audit_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

// follow follows path until the test ends.
func follow(t *testing.T, ctx context.Context, path string) (seen <-chan audit.Event, result <-chan error) {
	t.Helper()
	events, ended := make(chan audit.Event, 100), make(chan error, 1)
	go func() {
		ended <- audit.Follow(ctx, path, func(r audit.Record) error {
			events <- r.Event
			return nil
		})
	}()
	return events, ended
}

func TestFollowGoesOnUntilTheSandboxIsDestroyed(t *testing.T) {
	path := newLog(t, denied(1))
	seen, ended := follow(t, t.Context(), path)
	l := open(t, path)
	for i := 1; i <= 3; i++ {
		if diff := cmp.Diff(audit.Event(denied(i)), <-seen); diff != "" {
			t.Fatalf("event (-want +got):\n%s", diff)
		}
		must(t, l.Append(denied(i+1)))
	}
	<-seen
	must(t, l.Append(audit.SandboxDestroyed{}))
	if got := <-seen; got != (audit.SandboxDestroyed{}) {
		t.Errorf("last event = %+v", got)
	}
	must(t, <-ended)
}

func TestFollowWaitsForTheRestOfALine(t *testing.T) {
	path := newLog(t, denied(1), audit.SandboxDestroyed{})
	data, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, data[:len(data)-5], 0o600))
	seen, ended := follow(t, t.Context(), path)
	<-seen
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = f.Write(data[len(data)-5:])
	must(t, err)
	must(t, f.Close())
	if got := <-seen; got != (audit.SandboxDestroyed{}) {
		t.Errorf("event = %+v, want it whole", got)
	}
	must(t, <-ended)
}

func TestFollowEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	seen, ended := follow(t, ctx, newLog(t, denied(1)))
	<-seen
	cancel()
	must(t, <-ended)
}

func TestFollowRefuses(t *testing.T) {
	if err := audit.Follow(t.Context(), filepath.Join(t.TempDir(), "none"), nil); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("Follow of no log = %v, want NotFound", err)
	}
	for name, change := range map[string]func(path string) error{
		"shortened": func(path string) error { return os.Truncate(path, 10) },
		"removed":   os.Remove,
	} {
		path := newLog(t, denied(1))
		seen, ended := follow(t, t.Context(), path)
		<-seen
		must(t, change(path))
		if err := <-ended; !errdefs.Is(err, errdefs.Precondition) {
			t.Errorf("Follow of a log that was %s = %v, want Precondition", name, err)
		}
	}
	enough := errors.New("enough")
	if err := audit.Follow(t.Context(), newLog(t, denied(1)), func(audit.Record) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("Follow = %v, want the caller's error", err)
	}
}
