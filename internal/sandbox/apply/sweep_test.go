package apply_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// kinds lists the events of a sandbox's log; nil if there is none.
func kinds(t *testing.T, h *record.Home, id record.ID) []audit.Kind {
	t.Helper()
	var list []audit.Kind
	err := audit.Read(h.AuditPath(id), func(r audit.Record) error {
		list = append(list, r.Event.Kind())
		return nil
	})
	if err != nil && !errdefs.Is(err, errdefs.NotFound) {
		t.Error(err)
	}
	return list
}

// rename moves a directory of a home's sandboxes, as a crash leaves it.
func rename(t *testing.T, s *record.Sandbox, name string) {
	t.Helper()
	if err := os.Rename(s.Dir(), filepath.Join(filepath.Dir(s.Dir()), name)); err != nil {
		t.Fatal(err)
	}
}

func TestLeftoversOfACrashAreSwept(t *testing.T) {
	h := openHome(t)
	whole, gone, made := create(t, h, "whole"), create(t, h, "gone"), create(t, h, "made")
	rename(t, gone, ".gone-0123456789abcdef")
	rename(t, made, ".making-"+string(made.ID()))
	// What a deletion has lifted out of a deep tree may call itself anything.
	lifted := filepath.Join(filepath.Dir(whole.Dir()), ".gone-fedcba9876543210.1")
	rec, err := os.ReadFile(filepath.Join(whole.Dir(), "sandbox.json"))
	if err == nil {
		err = os.Mkdir(lifted, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(lifted, "sandbox.json"), rec, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if all, err := h.List(); len(all) != 1 || err != nil {
		t.Errorf("List = %v, %v, want the one whole sandbox", all, err)
	}
	var told []string
	err = h.Sweep(func(dir string) error {
		told = append(told, filepath.Base(dir))
		return nil
	})
	if err != nil || len(told) != 3 {
		t.Errorf("Sweep = %v, of %q", err, told)
	}
	if names := dirNames(t, filepath.Dir(whole.Dir())); !slices.Equal(names, []string{"whole"}) {
		t.Errorf("sandboxes holds %q", names)
	}
	for _, tt := range []struct {
		of   *record.Sandbox
		want []audit.Kind
	}{
		{whole, []audit.Kind{audit.KindSandboxCreated}},
		{gone, []audit.Kind{audit.KindSandboxCreated, audit.KindSandboxDestroyed}},
		{made, nil}, // it never was there
	} {
		if got := kinds(t, h, tt.of.ID()); !slices.Equal(got, tt.want) || h.Knew(tt.of.ID()) != (tt.want != nil) {
			t.Errorf("the log of %s has %q, want %q; known: %v", tt.of.Name(), got, tt.want, h.Knew(tt.of.ID()))
		}
	}
}

func TestSweepLogsADestructionOnce(t *testing.T) {
	h := openHome(t)
	s := create(t, h, "fix")
	record, err := os.ReadFile(filepath.Join(s.Dir(), "sandbox.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Remove("fix"); err != nil {
		t.Fatal(err)
	}
	// Killed while it deleted: the record is still there.
	again := filepath.Join(filepath.Dir(s.Dir()), ".gone-0123456789abcdef")
	if err := errors.Join(os.Mkdir(again, 0o700), os.WriteFile(filepath.Join(again, "sandbox.json"), record, 0o600)); err != nil {
		t.Fatal(err)
	}
	create(t, h, "next") // sweeps too
	if got := kinds(t, h, s.ID()); !slices.Equal(got, []audit.Kind{audit.KindSandboxCreated, audit.KindSandboxDestroyed}) {
		t.Errorf("the log has %q", got)
	}
	if names := dirNames(t, filepath.Dir(s.Dir())); !slices.Equal(names, []string{"next"}) {
		t.Errorf("sandboxes holds %q", names)
	}
}

func TestSweepLeavesWhatCannotBeClearedFirst(t *testing.T) {
	h := openHome(t)
	s := create(t, h, "fix")
	rename(t, s, ".gone-0123456789abcdef")
	busy := errors.New("something is mounted")
	if err := h.Sweep(func(string) error { return busy }); !errors.Is(err, busy) {
		t.Errorf("Sweep = %v, want %v", err, busy)
	}
	if names := dirNames(t, filepath.Dir(s.Dir())); len(names) != 1 {
		t.Errorf("sandboxes holds %q, want what could not be cleared", names)
	}
}

func TestANameThatIsTakenLeavesNoLog(t *testing.T) {
	h := openHome(t)
	create(t, h, "fix")
	if _, err := h.Create(recordOf(t, h, t.TempDir(), "fix")); !errdefs.Is(err, errdefs.Exists) {
		t.Errorf("Create of a name that is taken = %v, want Exists", err)
	}
	logs, err := os.ReadDir(filepath.Join(h.Dir(), "audit"))
	if err != nil || len(logs) != 2 {
		t.Errorf("%d files in audit, %v, want one log and its head", len(logs), err)
	}
}
