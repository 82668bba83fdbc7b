package apply_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// remove creates a sandbox and removes it, which leaves its log.
func remove(t *testing.T, h *record.Home, name string) record.ID {
	t.Helper()
	id := create(t, h, name).ID()
	if err := h.Remove(name); err != nil {
		t.Fatal(err)
	}
	return id
}

// age makes a log as old as one that was written to that long ago.
func age(t *testing.T, h *record.Home, id record.ID, by time.Duration) {
	t.Helper()
	at := time.Now().Add(-by)
	if err := os.Chtimes(h.AuditPath(id), at, at); err != nil {
		t.Fatal(err)
	}
}

func TestLogsOfRemovedSandboxesAreDeletedWithAge(t *testing.T) {
	h := openHome(t)
	h.BoundAudit(config.Audit{Retention: time.Hour})
	old, young, alive := remove(t, h, "old"), remove(t, h, "young"), create(t, h, "alive")
	age(t, h, old, 2*time.Hour)
	age(t, h, alive.ID(), 2*time.Hour)
	if err := os.Remove(filepath.Join(h.Dir(), "pruned")); err != nil { // an hour has passed
		t.Fatal(err)
	}
	create(t, h, "next") // which looks for what is too old
	if h.Knew(old) || !h.Knew(young) || !h.Knew(alive.ID()) {
		t.Errorf("the logs are there: old %t, young %t, alive %t; want the old one gone alone", h.Knew(old), h.Knew(young), h.Knew(alive.ID()))
	}
	if _, err := os.Lstat(h.AuditPath(old) + ".head"); err == nil {
		t.Error("the head of a deleted log is left")
	}
	if n, err := h.PruneLogs(0); n != 1 || err != nil || h.Knew(young) || !h.Knew(alive.ID()) {
		t.Errorf("PruneLogs = %d, %v, want the young one gone alone", n, err)
	}
}

func TestLogsAreKeptForEver(t *testing.T) {
	h := openHome(t)
	h.BoundAudit(config.Audit{})
	old := remove(t, h, "old")
	age(t, h, old, 10000*time.Hour)
	create(t, h, "next")
	if !h.Knew(old) {
		t.Error("a log was deleted although there is no retention")
	}
}

func TestTheBudgetOfAnOwnersLogs(t *testing.T) {
	h := openHome(t)
	h.BoundAudit(config.Audit{MaxBytesPerOwner: 4096})
	served := func(owner string) error {
		r := recordOf(t, h, t.TempDir(), "")
		r.Served = &record.Served{CodebaseID: "cb_0123456789abcdef", OwnerID: owner}
		s, err := h.Create(r)
		if err == nil {
			err = h.Remove(s.Name())
		}
		return err
	}
	var err error
	for n := 0; err == nil; n++ {
		if n == 100 {
			t.Fatal("an owner's logs have no bound")
		}
		err = served("flo")
	}
	if !errdefs.Is(err, errdefs.Exhausted) {
		t.Errorf("Create = %v, want Exhausted", err)
	}
	if err := served("ann"); err != nil {
		t.Errorf("another owner is refused: %v", err)
	}
	if _, err := h.Create(recordOf(t, h, t.TempDir(), "local")); err != nil {
		t.Errorf("the user of the host is refused: %v", err)
	}
	if _, err := h.PruneLogs(0); err != nil {
		t.Error(err)
	}
	if err := served("flo"); err != nil {
		t.Errorf("after the logs were deleted: %v", err)
	}
}
