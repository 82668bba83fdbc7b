package record_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/granted"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// newSandbox makes a state directory with one sandbox.
func newSandbox(t *testing.T) (*record.Home, *record.Sandbox) {
	t.Helper()
	h, err := record.OpenHomeAt(filepath.Join(t.TempDir(), "home"))
	if err != nil {
		t.Fatal(err)
	}
	source, err := h.ResolveSource(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.Create(record.Record{
		Name: "fix", Source: source, Workspace: string(source.Path), Runtime: "bwrap", Net: "none",
		Rules: []policy.Rule{{Pattern: "**", Permission: policy.Write, Source: "test"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return h, s
}

func open(t *testing.T, h *record.Home) record.Record {
	t.Helper()
	s, err := h.Open("fix")
	if err != nil {
		t.Fatal(err)
	}
	return s.Record()
}

// A record that is read again is not checked again, and is the same nevertheless.
func TestARecordReadAgain(t *testing.T) {
	h, s := newSandbox(t)
	first := open(t, h)
	first.Rules[0].Permission = policy.None
	second := open(t, h)
	if diff := cmp.Diff(s.Record(), second); diff != "" {
		t.Errorf("after a reader has changed what it read: %s", diff)
	}
	path := filepath.Join(s.Dir(), "sandbox.json")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := append([]byte(`{"schema_version":1,`), good[1:]...)
	if err := os.WriteFile(path, bad, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := h.Open("fix"); !errdefs.Is(err, errdefs.Precondition) {
			t.Errorf("a record with a key twice: %v, want Precondition", err)
		}
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(second, open(t, h)); diff != "" {
		t.Errorf("as it was before: %s", diff)
	}
}

func TestAGrantEndsWithoutAChangeOfTheFile(t *testing.T) {
	h, s := newSandbox(t)
	if err := s.GrantPath(granted.Change{Path: "/f", Permission: policy.Write, For: 300 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); len(open(t, h).Rules) > 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the grant has no end")
		}
	}
}

// Each new sandbox looks for old logs of removed ones, but not more often than once an hour: there
// may be thousands.
func TestOldLogsArePrunedOnceAnHour(t *testing.T) {
	h, _ := newSandbox(t)
	h.BoundAudit(config.Audit{Retention: time.Hour})
	sweep := func() {
		t.Helper()
		if err := h.Sweep(func(string) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	removed := func(id record.ID) string {
		t.Helper()
		path := h.AuditPath(id)
		log, err := audit.Open(path, audit.Options{Sandbox: "old", ID: string(id)})
		if err == nil {
			err = log.Append(audit.SandboxDestroyed{})
		}
		if err == nil {
			err = log.Close()
		}
		old := time.Now().Add(-2 * time.Hour)
		if err == nil {
			err = os.Chtimes(path, old, old)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	exists := func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	}
	marker := filepath.Join(h.Dir(), "pruned")
	long := time.Now().Add(-61 * time.Minute)
	if err := os.Chtimes(marker, long, long); err != nil {
		t.Fatalf("the sandbox's creation has not pruned: %v", err)
	}
	first := removed("sb_0000000000000001")
	sweep()
	if exists(first) {
		t.Error("an old log is kept, an hour after the last look")
	}
	second := removed("sb_0000000000000002")
	sweep()
	if !exists(second) {
		t.Error("logs are looked at again within an hour")
	}
	if n, err := h.PruneLogs(time.Hour); n != 1 || err != nil {
		t.Errorf("audit --prune removes %d, %v", n, err)
	}
}
