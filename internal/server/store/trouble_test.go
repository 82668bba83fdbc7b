package store_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/server/store"
)

// On a full disk a write is refused, what was there can be read, and with room
// again writing goes on.
func TestAFullDisk(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	s, ctx := open(t, filepath.Join(dir, "db"), store.Options{}), t.Context()
	var kept []id.Codebase
	var err error
	for i := range 100_000 {
		c := codebase("o", int64(i))
		if err = s.AddCodebase(ctx, c, 0); err != nil {
			break
		}
		kept = append(kept, c.ID)
	}
	wantKind(t, err, errdefs.Exhausted)
	if len(kept) < 10 {
		t.Fatalf("only %d rows fitted", len(kept))
	}
	for _, key := range kept {
		if _, err := s.Codebase(ctx, key); err != nil {
			t.Fatal(err)
		}
	}
	must(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=8m"))
	must(t, s.AddCodebase(ctx, codebase("o", 1), 0))
	all, _, err := s.Codebases(ctx, store.CodebaseFilter{}, store.Page{Size: 1 << 20})
	if err != nil || len(all) != len(kept)+1 {
		t.Errorf("%d codebases, %v, want %d", len(all), err, len(kept)+1)
	}
}

// While another process holds the write lock, writing is refused after the
// time-out, and reading goes on.
func TestALockedDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s, ctx := open(t, path, store.Options{BusyTimeout: time.Millisecond}), t.Context()
	c := codebase("o", 1)
	must(t, s.AddCodebase(ctx, c, 0))
	other, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate")
	must(t, err)
	defer other.Close()
	tx, err := other.BeginTx(ctx, nil)
	must(t, err)
	wantKind(t, s.AddCodebase(ctx, codebase("o", 2), 0), errdefs.Unavailable)
	if _, err := s.Codebase(ctx, c.ID); err != nil {
		t.Errorf("reading while another writes: %v", err)
	}
	must(t, tx.Rollback())
	must(t, s.AddCodebase(ctx, codebase("o", 2), 0))
}

func TestAnEndedContext(t *testing.T) {
	s := openNew(t)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer stop()
	for ctx, want := range map[context.Context]errdefs.Kind{canceled: errdefs.Canceled, late: errdefs.Deadline} {
		c := codebase("o", 1)
		wantKind(t, s.AddCodebase(ctx, c, 0), want)
		_, err := s.Codebase(ctx, c.ID)
		wantKind(t, err, want)
		_, _, err = s.Codebases(ctx, store.CodebaseFilter{}, store.Page{Size: 1})
		wantKind(t, err, want)
		_, err = s.Codebase(t.Context(), c.ID)
		wantKind(t, err, errdefs.NotFound)
	}
}

// A damaged row is an error; its token opens nothing.
func TestADamagedTokenIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := open(t, path, store.Options{})
	must(t, s.AddToken(t.Context(), store.Token{Hash: store.Hash{1}, Name: "t", Scopes: store.ScopeRead}))
	rawExec(t, path, "UPDATE tokens SET scopes = 'read,everything'")
	got, err := s.TokenByHash(t.Context(), store.Hash{1})
	wantKind(t, err, errdefs.Internal)
	if got != (store.Token{}) {
		t.Errorf("TokenByHash = %+v, want nothing", got)
	}
	_, err = s.Tokens(t.Context())
	wantKind(t, err, errdefs.Internal)
	if errors.Is(err, sql.ErrNoRows) {
		t.Error("a damaged row looks like none")
	}
}
