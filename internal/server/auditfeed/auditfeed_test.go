package auditfeed_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/server/auditfeed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink keeps what it is sent, unless fail returns an error.
type sink struct {
	mu   sync.Mutex
	got  []string
	fail func() error
}

func (s *sink) Send(_ context.Context, records []audit.Record) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		if err := s.fail(); err != nil {
			return len(records), err
		}
	}
	for _, r := range records {
		s.got = append(s.got, fmt.Sprintf("%s %d %s", r.ID, r.Seq, r.Event.Kind()))
	}
	return 0, nil
}

// taken returns what was sent since the last call, in an order that does not depend on that of
// the logs.
func (s *sink) taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.got
	s.got = nil
	slices.SortStableFunc(got, func(a, b string) int { return strings.Compare(a[:4], b[:4]) })
	return got
}

// world is a state directory with logs, and a feed of them.
type world struct {
	t    *testing.T
	dir  string
	sink sink
	said strings.Builder
}

func (w *world) log(id, codebase string) *audit.Log {
	w.t.Helper()
	l, err := audit.Open(filepath.Join(w.dir, id+".jsonl"), audit.Options{Sandbox: "fix", ID: id, CodebaseID: codebase})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close() })
	return l
}

func (w *world) append(l *audit.Log, events ...audit.Event) {
	w.t.Helper()
	if err := l.Append(events...); err != nil {
		w.t.Fatal(err)
	}
}

// run runs a feed, which looks at the logs at its begin, after each of the steps, and at its end.
func (w *world) run(positions string, steps ...func()) {
	w.t.Helper()
	tick := make(chan time.Time)
	f, err := auditfeed.New(auditfeed.Options{
		Name: "test", Sink: &w.sink, Positions: positions, Tick: tick,
		Logs: func() ([]string, error) { return filepath.Glob(filepath.Join(w.dir, "*.jsonl")) },
		Log:  slog.New(slog.NewTextHandler(&w.said, nil)),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx)
	}()
	for _, step := range steps {
		tick <- time.Time{} // it has looked before
		step()
	}
	stop()
	<-ended
}

func (w *world) wantTaken(want ...string) {
	w.t.Helper()
	if got := w.sink.taken(); !slices.Equal(got, want) {
		w.t.Errorf("taken\n %s\nwant\n %s\nthe server's log:\n%s", strings.Join(got, "\n "), strings.Join(want, "\n "), w.said.String())
	}
}

func TestRecordsOfTheServersSandboxesAreSentOnce(t *testing.T) {
	w := &world{t: t, dir: t.TempDir()}
	positions := filepath.Join(w.dir, "positions.json")
	one, two, local := w.log("sb_1", "cb_1"), w.log("sb_2", "cb_2"), w.log("sb_3", "")
	w.append(one, audit.SandboxStarted{}, audit.PermissionDenied{Path: "/.env"})
	w.append(two, audit.SandboxStarted{})
	w.append(local, audit.SandboxStarted{})
	w.run(positions, func() { w.append(two, audit.SandboxDestroyed{}) }, func() { w.append(one, audit.SandboxStopped{}) })
	w.wantTaken("sb_1 1 sandbox_started", "sb_1 2 permission_denied", "sb_1 3 sandbox_stopped", "sb_2 1 sandbox_started", "sb_2 2 sandbox_destroyed")

	// another server goes on where this one ended
	w.append(one, audit.SandboxStarted{})
	w.append(local, audit.SandboxStopped{})
	w.run(positions)
	w.wantTaken("sb_1 4 sandbox_started")

	// a log that is gone is forgotten, and the file knows the others
	if err := audit.Remove(filepath.Join(w.dir, "sb_2.jsonl")); err != nil {
		t.Fatal(err)
	}
	w.run(positions)
	w.wantTaken()
	text, err := os.ReadFile(positions)
	if err != nil || strings.Contains(string(text), "sb_2") || !strings.Contains(string(text), "sb_1") {
		t.Errorf("positions %s, %v", text, err)
	}
}

func TestALogThatIsArchivedIsSentOnce(t *testing.T) {
	for _, later := range []int{0, 40} { // the log gets shorter, and longer, than it was
		w := &world{t: t, dir: t.TempDir()}
		l := w.log("sb_1", "cb_1")
		w.append(l, audit.SandboxStarted{}, audit.SandboxStopped{})
		out, err := os.Create(filepath.Join(t.TempDir(), "archive"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		w.run(filepath.Join(w.dir, "positions.json"), func() {
			if err := l.Archive(out); err != nil {
				t.Error(err)
			}
			for range later {
				w.append(l, audit.SandboxStarted{})
			}
		})
		want := []string{"sb_1 1 sandbox_started", "sb_1 2 sandbox_stopped", "sb_1 3 archived"}
		for i := range later {
			want = append(want, fmt.Sprintf("sb_1 %d sandbox_started", 4+i))
		}
		w.wantTaken(want...)
	}
}

func TestWithoutPositionsOnlyNewRecordsAreSent(t *testing.T) {
	w := &world{t: t, dir: t.TempDir()}
	l := w.log("sb_1", "cb_1")
	w.append(l, audit.SandboxStarted{})
	w.run("", func() {}, func() {
		w.append(l, audit.SandboxStopped{})
		w.append(w.log("sb_2", "cb_1"), audit.SandboxStarted{})
	})
	w.wantTaken("sb_1 2 sandbox_stopped", "sb_2 1 sandbox_started")
}

func TestAReceiverInTroubleGetsAllLater(t *testing.T) {
	w := &world{t: t, dir: t.TempDir()}
	l := w.log("sb_1", "cb_1")
	w.append(l, audit.SandboxStarted{}, audit.SandboxStopped{})
	failures := 1
	w.sink.fail = func() error {
		if failures--; failures >= 0 {
			return errdefs.New(errdefs.Unavailable, "HTTP 503")
		}
		return nil
	}
	w.run(filepath.Join(w.dir, "positions.json"), func() {})
	w.wantTaken("sb_1 1 sandbox_started", "sb_1 2 sandbox_stopped")
	if said := w.said.String(); !strings.Contains(said, "HTTP 503") || !strings.Contains(said, "taken again") {
		t.Errorf("the server's log: %s", said)
	}
}

func TestWhatIsRefusedForGoodIsSaidAndPassedOver(t *testing.T) {
	w := &world{t: t, dir: t.TempDir()}
	l := w.log("sb_1", "cb_1")
	w.append(l, audit.SandboxStarted{})
	refuse := true
	w.sink.fail = func() error {
		if refuse {
			return errdefs.New(errdefs.Precondition, "HTTP 400")
		}
		return nil
	}
	w.run(filepath.Join(w.dir, "positions.json"), func() {
		w.sink.mu.Lock()
		refuse = false
		w.sink.mu.Unlock()
		w.append(l, audit.SandboxStopped{})
	})
	w.wantTaken("sb_1 2 sandbox_stopped")
	if said := w.said.String(); !strings.Contains(said, "refused=1") || !strings.Contains(said, "HTTP 400") {
		t.Errorf("the server's log: %s", said)
	}
}

func TestALogThatCannotBeReadIsSaidOnceAndSkippedUntilThen(t *testing.T) {
	w := &world{t: t, dir: t.TempDir()}
	l := w.log("sb_1", "cb_1")
	w.append(l, audit.SandboxStarted{})
	path := filepath.Join(w.dir, "sb_1.jsonl")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	w.run("", func() {}, func() {}, func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
		if err := os.Rename(path+".away", path); err != nil {
			t.Error(err)
		}
	}, func() {}, func() { w.append(l, audit.SandboxStopped{}) })
	w.wantTaken("sb_1 2 sandbox_stopped")
	if n := strings.Count(w.said.String(), "cannot be read"); n != 1 {
		t.Errorf("said %d times: %s", n, w.said.String())
	}
}

func TestDamagedPositionsAreRefused(t *testing.T) {
	for _, text := range []string{"", "{", `{"schema_version":2,"logs":{}}`, `{"schema_version":1}`} {
		path := filepath.Join(t.TempDir(), "positions.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := auditfeed.New(auditfeed.Options{Positions: path}); !errdefs.Is(err, errdefs.Precondition) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// endingSink tells the feed to end while it is sent something.
type endingSink struct {
	end  func()
	sent int
	cut  error
}

func (s *endingSink) Send(ctx context.Context, records []audit.Record) (int, error) {
	s.end()
	s.sent, s.cut = s.sent+len(records), ctx.Err()
	return 0, s.cut
}

// What is under way when the feed ends may have arrived already: cut off, it would be sent twice.
func TestTheEndCutsOffNothing(t *testing.T) {
	w := &world{t: t, dir: t.TempDir()}
	w.append(w.log("sb_1", "cb_1"), audit.SandboxStarted{})
	ctx, end := context.WithCancel(t.Context())
	s := &endingSink{end: end}
	f, err := auditfeed.New(auditfeed.Options{
		Name: "test", Sink: s, Positions: filepath.Join(w.dir, "positions.json"),
		Logs: func() ([]string, error) { return filepath.Glob(filepath.Join(w.dir, "*.jsonl")) },
		Log:  slog.New(slog.NewTextHandler(&w.said, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	f.Run(ctx)
	if s.sent != 1 || s.cut != nil {
		t.Errorf("%d records were sent, and cut off: %v; the server's log:\n%s", s.sent, s.cut, w.said.String())
	}
}
