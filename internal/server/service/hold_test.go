package service

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/server/auth"
	"github.com/agentfense/agentfense/internal/server/codebase"
	"github.com/agentfense/agentfense/internal/server/store"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// Between the hold and the command of a caller who may not apply, another call may
// stop the sandbox, which holds nothing, and start it again. The hold is still there.
func TestAHoldLastsUntilItsCommandIsDone(t *testing.T) {
	home, err := record.OpenHomeAt(filepath.Join(t.TempDir(), "home"))
	check(t, err)
	files, err := codebase.Open(codebase.Options{Dir: filepath.Join(home.Dir(), "codebases"), Home: home.Dir()})
	check(t, err)
	defer files.Close()
	cb, err := files.Create(id.NewCodebase())
	check(t, err)
	dir, err := cb.Source()
	check(t, err)
	source, err := home.ResolveSource(dir)
	check(t, err)
	sb, err := home.Create(record.Record{
		Source: source, Workspace: wireconv.Workspace, Runtime: record.RuntimeBwrap, Net: record.NetNone,
		Served: &record.Served{CodebaseID: string(cb.ID()), OwnerID: "me"},
	})
	check(t, err)
	s := New(Options{Config: config.Default(), Home: home, Codebases: files, Log: slog.New(slog.DiscardHandler)})
	defer s.Close()

	ctx := context.WithValue(t.Context(), callerKey{}, auth.Caller{Scopes: store.ScopeExec})
	done, err := s.holdFor(ctx, sb)
	check(t, err)
	for _, want := range []bool{true, false} {
		check(t, s.syncStopped(ctx, sb))
		if held, err := sb.IsSyncHeld(); held != want || err != nil {
			t.Errorf("the sync is held: %t, %v; want %t", held, err, want)
		}
		if want {
			done()
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
