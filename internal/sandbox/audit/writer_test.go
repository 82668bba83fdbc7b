package audit_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

func TestAWriterKeepsTheOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sb.jsonl")
	w := audit.NewWriter(open(t, path), audit.WriterOptions{})
	var want []audit.Event
	for i := range 1000 {
		must(t, w.Enqueue(denied(i)))
		want = append(want, denied(i))
	}
	command := audit.CommandExecuted{Argv: []audit.Text{"true"}}
	must(t, w.Append(t.Context(), command))
	if diff := cmp.Diff(append(want, command), events(t, path)); diff != "" {
		t.Errorf("events when Append returned (-want +got):\n%s", diff)
	}
	must(t, w.Enqueue(denied(1)))
	must(t, w.Close(t.Context()))
	must(t, w.Close(t.Context()))
	if n := len(events(t, path)); n != 1002 {
		t.Errorf("%d events after Close, want 1002", n)
	}
	if err := w.Enqueue(denied(1)); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("Enqueue after Close = %v, want Precondition", err)
	}
}

// lockLog holds the log as another process does that appends for long.
func lockLog(t *testing.T, path string) (release func()) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	return func() { must(t, f.Close()) }
}

func TestAFullQueueRefusesAndCounts(t *testing.T) {
	path := newLog(t)
	release := lockLog(t, path)
	w := audit.NewWriter(open(t, path), audit.WriterOptions{QueueBytes: 4096})
	accepted, refused := 0, 0
	for refused < 10 {
		err := w.Enqueue(denied(accepted))
		switch {
		case err == nil:
			accepted++
		case errdefs.Is(err, errdefs.Exhausted):
			refused++
		default:
			t.Fatal(err)
		}
	}
	if accepted == 0 || accepted > 40 {
		t.Errorf("%d events fitted into 4 KiB", accepted)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Append(ctx, denied(0)); !errdefs.Is(err, errdefs.Exhausted) {
		t.Errorf("Append = %v, want Exhausted like Enqueue", err)
	}
	release()
	must(t, w.Close(t.Context()))
	s, err := audit.Verify(path)
	if err != nil || s.Lost != 11 || s.Records != uint64(accepted+s.Gaps) {
		t.Errorf("Verify = %+v, %v, want %d events and 11 lost", s, err, accepted)
	}
}

func TestAppendEndsWithItsContext(t *testing.T) {
	path := newLog(t)
	release := lockLog(t, path)
	w := audit.NewWriter(open(t, path), audit.WriterOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Append(ctx, denied(0)); !errdefs.Is(err, errdefs.Canceled) {
		t.Errorf("Append = %v, want Canceled", err)
	}
	ctx, cancel = context.WithDeadline(t.Context(), time.Time{})
	defer cancel()
	if err := w.Append(ctx, denied(0)); !errdefs.Is(err, errdefs.Deadline) {
		t.Errorf("Append = %v, want Deadline", err)
	}
	release()
	must(t, w.Close(t.Context()))
}

func TestAWriterTriesAgain(t *testing.T) {
	path := newLog(t, denied(0))
	info, err := os.Stat(path)
	must(t, err)
	failed, recovered := make(chan error, 1), make(chan bool, 1)
	w := audit.NewWriter(open(t, path), audit.WriterOptions{
		OnFailure:  func(err error) { failed <- err },
		OnRecovery: func() { recovered <- true },
	})
	lift := limitFileSize(t, info.Size()*5/2)
	must(t, w.Enqueue(denied(1)))
	must(t, w.Enqueue(denied(2)))
	must(t, w.Enqueue(denied(3)))
	if err := <-failed; !errdefs.Is(err, errdefs.Exhausted) {
		t.Errorf("OnFailure(%v), want Exhausted", err)
	}
	lift()
	<-recovered
	must(t, w.Close(t.Context()))
	var got []audit.Event
	for _, ev := range events(t, path) {
		if ev.Kind() == audit.KindPermissionDenied {
			got = append(got, ev)
		}
	}
	if diff := cmp.Diff([]audit.Event{denied(0), denied(1), denied(2), denied(3)}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if s, err := audit.Verify(path); err != nil || s.Lost != 0 {
		t.Errorf("Verify = %+v, %v, want nothing lost", s, err)
	}
}

func TestCloseGivesUpAndSaysWhatIsLost(t *testing.T) {
	path := newLog(t, denied(0))
	info, err := os.Stat(path)
	must(t, err)
	l := open(t, path)
	failed := make(chan error, 1)
	w := audit.NewWriter(l, audit.WriterOptions{OnFailure: func(err error) { failed <- err }})
	lift := limitFileSize(t, info.Size())
	must(t, w.Enqueue(denied(1)))
	<-failed
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Close(ctx); !errdefs.Is(err, errdefs.Exhausted) {
		t.Errorf("Close = %v, want Exhausted", err)
	}
	lift()
	must(t, l.Append(denied(2)))
	if s, err := audit.Verify(path); err != nil || s.Lost != 1 {
		t.Errorf("Verify = %+v, %v, want one lost", s, err)
	}
}
