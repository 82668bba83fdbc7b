package store_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/server/store"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childVariable); path != "" {
		child(path)
	}
	// Each check opens a database and each step waits for the disk: a hundred
	// of them take a minute under the race detector. A flag still has its way.
	if err := flag.Set("rapid.checks", "20"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// open opens the database at path until the test ends.
func open(t *testing.T, path string, o store.Options) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func openNew(t *testing.T) *store.Store {
	t.Helper()
	return open(t, filepath.Join(t.TempDir(), "server.db"), store.Options{})
}

// fatalist is what testing and rapid have in common.
type fatalist interface {
	Helper()
	Fatal(...any)
	Errorf(string, ...any)
}

// must fails the test for an error.
func must(t fatalist, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t fatalist, err error, want errdefs.Kind) {
	t.Helper()
	if !errdefs.Is(err, want) {
		t.Errorf("got %v (%v), want %v", err, errdefs.KindOf(err), want)
	}
}

// at is a moment, by its seconds.
func at(seconds int64) time.Time { return time.Unix(seconds, 7).UTC() }

func codebase(owner string, seconds int64) store.Codebase {
	return store.Codebase{ID: id.NewCodebase(), Name: "n", OwnerID: owner, CreatedAt: at(seconds), UpdatedAt: at(seconds)}
}

func sandbox(owner string, of id.Codebase, seconds int64) store.Sandbox {
	key := id.NewSandbox()
	return store.Sandbox{ID: key, Name: string(key), CodebaseID: of, OwnerID: owner, CreatedAt: at(seconds)}
}

func TestCodebases(t *testing.T) {
	s, ctx := openNew(t), t.Context()
	c := codebase("o", 1)
	c.LinkedPath = "/a\xff\nb"
	must(t, s.AddCodebase(ctx, c, 0))
	wantKind(t, s.AddCodebase(ctx, c, 0), errdefs.Exists)
	must(t, s.SetCodebaseContent(ctx, c.ID, 1<<40, 9, at(2)))
	c.SizeBytes, c.FileCount, c.UpdatedAt = 1<<40, 9, at(2)
	got, err := s.Codebase(ctx, c.ID)
	if diff := cmp.Diff(c, got); err != nil || diff != "" {
		t.Errorf("Codebase: %v (-want +got):\n%s", err, diff)
	}

	b := sandbox("o", c.ID, 3)
	must(t, s.AddSandbox(ctx, b, 0))
	wantKind(t, s.RemoveCodebase(ctx, c.ID), errdefs.Precondition)
	must(t, s.RemoveSandbox(ctx, b.ID))
	must(t, s.RemoveCodebase(ctx, c.ID))

	_, err = s.Codebase(ctx, c.ID)
	wantKind(t, err, errdefs.NotFound)
	wantKind(t, s.RemoveCodebase(ctx, c.ID), errdefs.NotFound)
	wantKind(t, s.SetCodebaseContent(ctx, c.ID, 0, 0, at(3)), errdefs.NotFound)
	wantKind(t, s.RemoveSandbox(ctx, b.ID), errdefs.NotFound)
	wantKind(t, s.AddSandbox(ctx, b, 0), errdefs.NotFound) // its codebase
	must(t, s.Check(ctx))
}

// Of twenty that ask at once for the last five places, five get one.
func TestAnOwnerHasNoMoreThanAllowed(t *testing.T) {
	s, ctx := openNew(t), t.Context()
	c := codebase("o", 1)
	must(t, s.AddCodebase(ctx, c, 0))
	must(t, s.AddSandbox(ctx, sandbox("other", c.ID, 1), 1))
	var wg sync.WaitGroup
	errs := make([]error, 20)
	for i := range errs {
		wg.Go(func() { errs[i] = s.AddSandbox(ctx, sandbox("o", c.ID, int64(i)), 5) })
	}
	wg.Wait()
	taken := 0
	for _, err := range errs {
		if err == nil {
			taken++
		} else {
			wantKind(t, err, errdefs.Exhausted)
		}
	}
	if taken != 5 {
		t.Errorf("%d of 20 got a place, want 5", taken)
	}
}

func TestReplaceSandboxesIsAllOrNothing(t *testing.T) {
	s, ctx := openNew(t), t.Context()
	old := store.Sandbox{ID: id.NewSandbox(), Name: "run-made", CreatedAt: at(1)}
	must(t, s.ReplaceSandboxes(ctx, []store.Sandbox{old}))
	twin := sandbox("o", "cb_0000000000000000", 2)
	wantKind(t, s.ReplaceSandboxes(ctx, []store.Sandbox{sandbox("o", "", 2), twin, twin}), errdefs.Exists)
	all, _, err := s.Sandboxes(ctx, store.SandboxFilter{}, store.Page{Size: 10})
	if diff := cmp.Diff([]store.Sandbox{old}, all); err != nil || diff != "" {
		t.Errorf("after a refused replacement: %v (-want +got):\n%s", err, diff)
	}
	must(t, s.ReplaceSandboxes(ctx, []store.Sandbox{twin}))
	got, err := s.Sandbox(ctx, twin.ID)
	if err != nil || got != twin {
		t.Errorf("Sandbox = %+v, %v, want %+v", got, err, twin)
	}
	_, err = s.Sandbox(ctx, old.ID)
	wantKind(t, err, errdefs.NotFound)
}

func TestTokens(t *testing.T) {
	s, ctx := openNew(t), t.Context()
	a := store.Token{Hash: store.Hash{1}, Name: "a", OwnerID: "o", Scopes: store.ScopeRead | store.ScopeApply, CreatedAt: at(1), ExpiresAt: at(9)}
	b := store.Token{Hash: store.Hash{2}, Name: "b", Scopes: store.AllScopes, CreatedAt: at(2)}
	must(t, s.AddToken(ctx, b))
	must(t, s.AddToken(ctx, a))
	wantKind(t, s.AddToken(ctx, store.Token{Hash: store.Hash{3}, Name: "a", Scopes: store.ScopeRead}), errdefs.Exists)
	wantKind(t, s.AddToken(ctx, store.Token{Hash: store.Hash{3}, Name: "c"}), errdefs.Invalid)
	wantKind(t, s.AddToken(ctx, store.Token{Hash: store.Hash{3}, Name: "c", Scopes: 64}), errdefs.Invalid)
	wantKind(t, s.AddToken(ctx, store.Token{Hash: store.Hash{3}, Scopes: store.ScopeRead}), errdefs.Invalid)
	got, err := s.Tokens(ctx)
	if diff := cmp.Diff([]store.Token{a, b}, got); err != nil || diff != "" {
		t.Errorf("Tokens: %v (-want +got):\n%s", err, diff)
	}
	one, err := s.TokenByHash(ctx, a.Hash)
	if err != nil || one != a {
		t.Errorf("TokenByHash = %+v, %v", one, err)
	}
	must(t, s.RemoveToken(ctx, "a"))
	wantKind(t, s.RemoveToken(ctx, "a"), errdefs.NotFound)
	_, err = s.TokenByHash(ctx, a.Hash)
	wantKind(t, err, errdefs.NotFound)
}

func TestScopesReadBack(t *testing.T) {
	for s := store.Scopes(1); s <= store.AllScopes; s++ {
		if back, err := store.ParseScopes(s.String()); err != nil || back != s {
			t.Errorf("ParseScopes(%q) = %v, %v", s, back, err)
		}
	}
	for _, bad := range []string{"", "reed", "read,", "READ"} {
		_, err := store.ParseScopes(bad)
		wantKind(t, err, errdefs.Invalid)
	}
}

func TestPages(t *testing.T) {
	s, ctx := openNew(t), t.Context()
	var want []store.Codebase
	for i := range 7 { // three are of one moment
		c := codebase("o", int64(max(0, i-2)))
		c.ID = id.Codebase(fmt.Sprintf("cb_%016x", i))
		want = append(want, c)
	}
	for _, i := range []int{3, 0, 6, 2, 5, 1, 4} {
		must(t, s.AddCodebase(ctx, want[i], 0))
		must(t, s.AddCodebase(ctx, codebase("p", int64(i)), 0))
	}
	for size := 1; size <= 8; size++ {
		var got []store.Codebase
		token := ""
		for range 20 {
			page, next, err := s.Codebases(ctx, store.CodebaseFilter{OwnerID: "o"}, store.Page{Size: size, Token: token})
			must(t, err)
			got = append(got, page...)
			if token = next; token == "" {
				break
			}
			if len(page) != size {
				t.Fatalf("a page of %d has %d entries, and is not the last", size, len(page))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pages of %d (-want +got):\n%s", size, diff)
		}
	}

	// What is deleted and made between two pages moves nothing.
	_, token, err := s.Codebases(ctx, store.CodebaseFilter{OwnerID: "o"}, store.Page{Size: 3})
	must(t, err)
	must(t, s.RemoveCodebase(ctx, want[2].ID))
	must(t, s.RemoveCodebase(ctx, want[3].ID))
	late := codebase("o", 100)
	must(t, s.AddCodebase(ctx, late, 0))
	got, _, err := s.Codebases(ctx, store.CodebaseFilter{OwnerID: "o"}, store.Page{Size: 10, Token: token})
	if diff := cmp.Diff(append(want[4:7:7], late), got); err != nil || diff != "" {
		t.Errorf("the second page: %v (-want +got):\n%s", err, diff)
	}

	for _, bad := range []string{"x", "!!!", token + "AA", token[:len(token)-2], " " + token, strings.Repeat("A", 4096), "AAAAAAAAAAA"} {
		_, _, err := s.Codebases(ctx, store.CodebaseFilter{}, store.Page{Size: 3, Token: bad})
		wantKind(t, err, errdefs.Invalid)
	}
	_, _, err = s.Sandboxes(ctx, store.SandboxFilter{}, store.Page{Size: 3, Token: token})
	wantKind(t, err, errdefs.Invalid)
	for _, size := range []int{0, -1} {
		_, _, err := s.Codebases(ctx, store.CodebaseFilter{}, store.Page{Size: size})
		wantKind(t, err, errdefs.Invalid)
	}
}

func FuzzPageToken(f *testing.F) {
	s, err := store.Open(context.Background(), filepath.Join(f.TempDir(), "db"), store.Options{})
	must(f, err)
	f.Cleanup(func() { s.Close() })
	f.Add("")
	f.Add("AAAAAAAAAABjYl8wMDAwMDAwMDAwMDAwMDAw")
	f.Fuzz(func(t *testing.T, token string) {
		if _, _, err := s.Codebases(t.Context(), store.CodebaseFilter{}, store.Page{Size: 1, Token: token}); err != nil {
			wantKind(t, err, errdefs.Invalid)
		}
	})
}

func TestTheFilesArePrivate(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "a ?#%41&b.db"), store.Options{})
	must(t, s.AddCodebase(t.Context(), codebase("o", 1), 0))
	entries, err := os.ReadDir(dir)
	must(t, err)
	if len(entries) != 3 {
		t.Errorf("%d files, want the database, its log and the log's index", len(entries))
	}
	for _, e := range entries {
		info, err := e.Info()
		must(t, err)
		if !strings.HasPrefix(e.Name(), "a ?#%41&b.db") || info.Mode() != 0o600 {
			t.Errorf("%s has mode %v, want 0600", e.Name(), info.Mode())
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	foreign := filepath.Join(dir, "foreign.db")
	rawExec(t, foreign, "CREATE TABLE codebases (x)")
	newer := filepath.Join(dir, "newer.db")
	open(t, newer, store.Options{}).Close()
	rawExec(t, newer, "PRAGMA user_version = 99")
	text := filepath.Join(dir, "text")
	must(t, os.WriteFile(text, []byte(strings.Repeat("no database ", 200)), 0o600))

	tests := []struct {
		name, path string
		kind       errdefs.Kind
		says       string
	}{
		{"a database of a newer version", newer, errdefs.Precondition, "version 99 is of a newer agentfense"},
		{"another program's database", foreign, errdefs.Precondition, "not a database of agentfense"},
		{"a file that is no database", text, errdefs.Precondition, "not a database"},
		{"a directory that is not there", filepath.Join(dir, "no", "db"), errdefs.NotFound, "no such file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before, _ := os.ReadFile(tt.path)
			_, err := store.Open(t.Context(), tt.path, store.Options{})
			wantKind(t, err, tt.kind)
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Open: %v, want %q in it", err, tt.says)
			}
			after, _ := os.ReadFile(tt.path)
			if !cmp.Equal(before, after) {
				t.Error("it was changed")
			}
		})
	}
}

func rawOpen(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	must(t, err)
	return db
}

// rawExec runs statements on the file without the store.
func rawExec(t *testing.T, path string, statements ...string) {
	t.Helper()
	db := rawOpen(t, path)
	defer db.Close()
	for _, statement := range statements {
		_, err := db.ExecContext(t.Context(), statement)
		must(t, err)
	}
}

func TestMigrationFromVersion1(t *testing.T) {
	first, err := os.ReadFile("migrations/0001_codebases.sql")
	must(t, err)
	path := filepath.Join(t.TempDir(), "old.db")
	rawExec(t, path, string(first), "PRAGMA user_version = 1",
		"INSERT INTO codebases VALUES ('cb_00000000000000aa', 'n', 'o', '', 5, 6, 1000000007, 2000000007)",
		"INSERT INTO sandboxes VALUES ('sb_00000000000000aa', 's', 'cb_00000000000000aa', 'o', 1000000007)")
	for range 2 { // the second time there is nothing to do
		s := open(t, path, store.Options{})
		got, err := s.Codebase(t.Context(), "cb_00000000000000aa")
		want := store.Codebase{ID: "cb_00000000000000aa", Name: "n", OwnerID: "o", SizeBytes: 5, FileCount: 6, CreatedAt: at(1), UpdatedAt: at(2)}
		if err != nil || got != want {
			t.Errorf("Codebase = %+v, %v, want %+v", got, err, want)
		}
		if _, err := s.Sandbox(t.Context(), "sb_00000000000000aa"); err != nil {
			t.Error(err)
		}
		must(t, s.AddToken(t.Context(), store.Token{Hash: store.Hash{1}, Name: "t", Scopes: store.AllScopes}))
		must(t, s.RemoveToken(t.Context(), "t"))
		must(t, s.Close())
	}
}

// Processes that open one new database at once all find it whole.
func TestManyOpenAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			s, err := store.Open(t.Context(), path, store.Options{BusyTimeout: time.Minute})
			if err == nil {
				err = errors.Join(s.AddCodebase(t.Context(), codebase("o", int64(i)), 0), s.Close())
			}
			errs[i] = err
		})
	}
	wg.Wait()
	must(t, errors.Join(errs...))
	all, _, err := open(t, path, store.Options{}).Codebases(t.Context(), store.CodebaseFilter{}, store.Page{Size: 100})
	if err != nil || len(all) != len(errs) {
		t.Errorf("%d codebases, %v, want %d", len(all), err, len(errs))
	}
}

func TestClosed(t *testing.T) {
	s := openNew(t)
	must(t, s.Close())
	if err := s.Check(t.Context()); err == nil {
		t.Error("a closed store answers")
	}
	if _, err := os.Stat("server.db"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a database was made in the working directory")
	}
}
