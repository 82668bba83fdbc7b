package board_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/board"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// TestTheHoldersLockDecides checks that an entry counts as long as its supervisor has the sandbox,
// and that a damaged file is an error, not the end of all locks.
func TestTheHoldersLockDecides(t *testing.T) {
	home, err := record.OpenHomeAt(filepath.Join(t.TempDir(), "home"))
	must(t, err)
	source, err := home.ResolveSource(t.TempDir())
	must(t, err)
	sb, err := home.Create(record.Record{Source: source, Name: "a", Workspace: "/workspace", Runtime: record.RuntimeBwrap, Net: record.NetNone})
	must(t, err)
	supervised, err := sb.TryLock(record.PurposeSupervise)
	must(t, err)
	b := board.Of(home, source, "")
	h := board.Holder{ID: sb.ID(), Name: "a", PID: os.Getpid()}
	must(t, b.Join(h))
	take := func(h board.Holder, paths ...vpath.Path) {
		t.Helper()
		u, err := b.Update(nil, func(table *board.Table) error {
			_, _, err := table.Acquire(h, board.Request{Paths: paths}, time.Now())
			return err
		})
		must(t, err)
		if u.Change == nil {
			t.Error("nothing was stored")
		}
	}
	has := func(want int) {
		t.Helper()
		if table, err := b.Locks(); err != nil || len(table.Locks) != want {
			t.Errorf("%d locks, %v, want %d", len(table.Locks), err, want)
		}
	}
	take(h, "/x", "/y")
	has(2)
	for name, forged := range map[string]board.Holder{
		"another run": {ID: h.ID, Name: h.Name, PID: h.PID + 1}, "another sandbox": {ID: "sb_0000000000000000", Name: h.Name, PID: h.PID},
		"no sandbox": {ID: h.ID, Name: "absent", PID: h.PID},
	} {
		t.Run(name, func(t *testing.T) {
			take(forged, "/z")
			has(2)
		})
	}
	if other, err := board.Of(home, source, "another owner").Locks(); err != nil || len(other.Locks) > 0 {
		t.Errorf("another owner sees %v, %v", other.Locks, err)
	}
	dropped := func(want bool) {
		t.Helper()
		if list, err := b.Members(); err != nil || len(list) != 1 {
			t.Errorf("members: %v, %v, want one", list, err)
		}
		if ended, err := b.DropEnded("a"); err != nil || ended != want {
			t.Errorf("dropped: %t, %v, want %t", ended, err, want)
		}
	}
	dropped(false)
	supervised.Release() // as the end of the process does
	has(0)
	dropped(true)
	if left, err := filepath.Glob(filepath.Join(home.Dir(), "boards", "*", "members", "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	files, err := filepath.Glob(filepath.Join(home.Dir(), "boards", "*", "locks.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	must(t, os.WriteFile(files[0], []byte(`{"version":1,"locks":[`), 0o600))
	if _, err := b.Locks(); !errdefs.Is(err, errdefs.Internal) {
		t.Errorf("a damaged file: %v", err)
	}
	must(t, os.WriteFile(files[0], []byte(`{"version":99}`+"\n"), 0o600))
	if _, err := b.Update(nil, func(*board.Table) error { return nil }); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("a file of a later version: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
