package portable_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/portable"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// importTo makes a sandbox on the source of like with the changes in file.
func importTo(like *record.Sandbox, file, name string, rules []policy.Rule, partial bool) (*record.Sandbox, portable.Result, error) {
	var result portable.Result
	in, err := portable.OpenImport(context.Background(), file)
	if err != nil {
		return nil, result, err
	}
	defer in.Close()
	old := like.Record()
	r := record.Record{Name: name, Source: old.Source, Workspace: old.Workspace, Runtime: old.Runtime, Net: old.Net, Rules: rules, Limits: old.Limits}
	box, err := like.Home.CreateWith(r, func(dir string) (err error) {
		result, err = in.Fill(context.Background(), like.Home, &r, dir, partial)
		return err
	})
	return box, result, err
}

// listing describes each entry of the view and each change of a sandbox.
func listing(t testing.TB, box *record.Sandbox) map[string]string {
	t.Helper()
	w, err := changes.OpenToRead(box)
	must(t, err)
	defer w.Close()
	all := map[string]string{}
	list, err := w.Changes(nil, false)
	must(t, err)
	for i := range list {
		if c := &list[i]; c.IsListed() {
			all["change "+string(c.Path)] = c.Status.String()
		}
	}
	links := map[layer.FileID]vpath.Path{}
	pending := []vpath.Path{vpath.Root}
	for len(pending) > 0 {
		dir := pending[0]
		pending = pending[1:]
		list, err := w.Stack.ReadDir(dir)
		must(t, err)
		for _, e := range list {
			p := dir.Child(e.Name)
			i, err := w.Stack.Lookup(p)
			must(t, err)
			text := fmt.Sprintf("%o", i.Mode)
			switch {
			case i.IsDir():
				pending = append(pending, p)
			case i.Mode&unix.S_IFMT == unix.S_IFLNK:
				target, err := w.Stack.Readlink(p)
				must(t, err)
				text += " " + target
			case i.Mode&unix.S_IFMT == unix.S_IFREG:
				text += fmt.Sprintf(" %d %s", i.Size, contentOf(t, w.Stack, p, i.Size))
				if all["change "+string(p)] == "" {
					break // an export has no copies with the same content, also of a file that has a new name
				}
				text += fmt.Sprintf(" %d.%09d", i.Mtime.Sec, i.Mtime.Nsec)
				if first, ok := links[i.ID]; ok {
					text += " = " + string(first)
				} else if i.Nlink > 1 {
					links[i.ID] = p
				}
			}
			all[string(p)] = text
		}
	}
	return all
}

// contentOf returns the parts of a file that are not zero.
func contentOf(t testing.TB, s *layer.Stack, p vpath.Path, size int64) string {
	t.Helper()
	f, _, err := s.Open(p, false)
	must(t, err)
	defer f.Close()
	b := make([]byte, size)
	_, err = f.ReadAt(b, 0)
	must(t, err)
	return strings.ReplaceAll(string(b), "\x00", "")
}

// edit is one random change. What is impossible is ignored.
func edit(t *rapid.T, s *layer.Stack) {
	names := []string{"a", "b", "dir", ".wh.a", ".wh..wh..opq", strings.Repeat("n", vpath.NameMax), "é\n%", ".wh." + strings.Repeat("w", vpath.NameMax-4)}
	path := func(label string) vpath.Path {
		p := vpath.Root
		for range rapid.IntRange(1, 3).Draw(t, label) {
			p = p.Child(rapid.SampledFrom(names).Draw(t, label))
		}
		return p
	}
	p := path("path")
	switch rapid.IntRange(0, 10).Draw(t, "operation") {
	case 0:
		if f, _, err := s.Create(p, rapid.SampledFrom([]uint32{0o644, 0o400, 0, 0o777}).Draw(t, "mode")); err == nil {
			f.WriteAt([]byte("begin"), 0)
			f.WriteAt([]byte("end"), rapid.Int64Range(0, 1<<16).Draw(t, "offset"))
			f.Close()
		}
	case 1, 2:
		s.Mkdir(p, rapid.SampledFrom([]uint32{0o755, 0o700, 0o1777}).Draw(t, "mode"))
	case 3:
		s.Unlink(p, false)
	case 4:
		s.Rmdir(p, nil)
	case 5:
		s.Link(p, path("to"))
	case 6:
		s.Symlink(rapid.SampledFrom([]string{"a", "../..", "/etc/passwd"}).Draw(t, "target"), p)
	case 7:
		s.Rename(p, path("to"), layer.RenameOptions{MaxEntries: 100, MaxBytes: 1 << 20})
	case 8:
		mode := rapid.SampledFrom([]uint32{0o755, 0o700, 0o600}).Draw(t, "mode")
		s.SetAttr(p, layer.SetAttr{Mode: &mode})
	case 9:
		if f, _, err := s.Open(p, true); err == nil {
			f.WriteAt([]byte("more"), rapid.Int64Range(0, 10000).Draw(t, "offset"))
			f.Close()
		}
	case 10:
		s.Mknod(p, rapid.SampledFrom([]uint32{unix.S_IFIFO | 0o600, unix.S_IFSOCK | 0o755}).Draw(t, "kind"))
	}
}

// What is exported and imported again over the same source is the same view, with the same changes.
func TestAnExportComesBack(t *testing.T) {
	all := []policy.Rule{{Pattern: "**", Permission: policy.Write}}
	box := newSandbox(t, map[string]string{"a": "old", "dir/a": "x", "dir/dir/b": "x", "b/dir/a": "x"}, func(*layer.Stack) {})
	must(t, box.Update(func(r *record.Record) error { r.Rules = all; return nil }))
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		source, err := box.Record().Source.Open()
		must(t, err)
		defer source.Close()
		stack, err := layer.Open(layer.Options{Source: source, Dir: box.LayersDir()})
		must(t, err)
		must(t, stack.Reset())
		for range rapid.IntRange(1, 30).Draw(rt, "edits") {
			edit(rt, stack)
		}
		must(t, stack.Close())
		file := filepath.Join(dir, fmt.Sprint(n))
		_, err = portable.AgentFS(context.Background(), box, file, portable.Options{})
		must(t, err)
		again, _, err := importTo(box, file, "again", all, false)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { must(t, box.Home.Remove("again")) }()
		if diff := cmp.Diff(listing(t, box), listing(t, again)); diff != "" {
			rt.Fatalf("the import differs (-before +after):\n%s", diff)
		}
		must(t, os.Remove(file))
	})
}

func openDatabase(t testing.TB, file string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", file)
	must(t, err)
	db.SetMaxOpenConns(1)
	return db
}

// execute changes a database.
func execute(t testing.TB, file, statements string) {
	t.Helper()
	db := openDatabase(t, file)
	defer db.Close()
	_, err := db.Exec(statements)
	must(t, err)
}

// An export without the audit log says so.
func TestAnExportNotesAnArchivedLog(t *testing.T) {
	box := newSandbox(t, nil, func(*layer.Stack) {})
	must(t, os.Remove(box.AuditPath()))
	result, err := portable.AgentFS(context.Background(), box, filepath.Join(t.TempDir(), "file.db"), portable.Options{})
	must(t, err)
	if len(result.Notes) != 1 || !strings.Contains(result.Notes[0], "archived") {
		t.Errorf("notes: %q", result.Notes)
	}
}

// queryFile returns the rows of a statement on a file, as text.
func queryFile(t *testing.T, file, statement string) (rows []string) {
	t.Helper()
	db, err := sql.Open("sqlite", file)
	must(t, err)
	defer db.Close()
	r, err := db.Query(statement)
	must(t, err)
	defer r.Close()
	for r.Next() {
		var row string
		must(t, r.Scan(&row))
		rows = append(rows, row)
	}
	must(t, r.Err())
	return rows
}

func TestTheKeyValueStoreIsKept(t *testing.T) {
	box := newSandbox(t, map[string]string{"f": "old"}, func(s *layer.Stack) {
		_, err := s.Unlink("/f", false)
		must(t, err)
	})
	file, again := filepath.Join(t.TempDir(), "file.db"), filepath.Join(t.TempDir(), "again.db")
	_, err := portable.AgentFS(t.Context(), box, file, portable.Options{})
	must(t, err)
	db, err := sql.Open("sqlite", file)
	must(t, err)
	_, err = db.Exec(`INSERT INTO kv_store VALUES ('a', '{"x":"\n"}', 1, 2), ('b', '"é"', NULL, NULL)`)
	must(t, errors.Join(err, db.Close()))

	imported, _, err := importTo(box, file, "imported", box.Record().Rules, false)
	must(t, err)
	_, err = portable.AgentFS(t.Context(), imported, again, portable.Options{})
	must(t, err)
	const all = "SELECT key || value || coalesce(created_at, '-') || coalesce(updated_at, '-') FROM kv_store ORDER BY key"
	if diff := cmp.Diff(queryFile(t, file, all), queryFile(t, again, all)); diff != "" {
		t.Errorf("the rows (-imported +exported again):\n%s", diff)
	}

	db, err = sql.Open("sqlite", file)
	must(t, err)
	_, err = db.Exec(`INSERT INTO kv_store VALUES ('large', zeroblob(17 << 20), 1, 2), ('larger', CAST(zeroblob(17 << 20) AS TEXT), 1, 2)`)
	must(t, errors.Join(err, db.Close()))
	in, err := portable.OpenImport(t.Context(), file)
	must(t, err)
	defer in.Close()
	if notes := strings.Join(in.Notes(""), "\n"); !strings.Contains(notes, "left out: 4 rows of kv_store: a sandbox keeps at most 16 MiB") {
		t.Errorf("notes: %s", notes)
	}
}

func TestAnImportSaysWhatItLeaves(t *testing.T) {
	box := newSandbox(t, nil, func(*layer.Stack) {})
	file := filepath.Join(t.TempDir(), "file.db")
	_, err := portable.AgentFS(t.Context(), box, file, portable.Options{})
	must(t, err)
	in, err := portable.OpenImport(t.Context(), file)
	must(t, err)
	defer in.Close()
	notes := strings.Join(in.Notes(string(box.Record().Source.Path)), "\n")
	for _, want := range []string{"the audit log of the exported sandbox", "the policy of the exported sandbox"} {
		if !strings.Contains(notes, "left out: "+want) {
			t.Errorf("notes %q do not say %q", notes, want)
		}
	}
	content, err := os.ReadFile(file)
	must(t, err)
	if want := fmt.Sprintf("%x", sha256.Sum256(content)); in.Digest != want {
		t.Errorf("digest %s, want %s", in.Digest, want)
	}
}

// An import removes what killed ones have left, and nothing of one that runs.
func TestLeftoversOfKilledImports(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	box := newSandbox(t, nil, func(*layer.Stack) {})
	file := filepath.Join(t.TempDir(), "file.db")
	_, err := portable.AgentFS(t.Context(), box, file, portable.Options{})
	must(t, err)
	dead, running := filepath.Join(temp, "agentfense-import-1"), filepath.Join(temp, "agentfense-import-2")
	for _, dir := range []string{dead, running} {
		must(t, os.Mkdir(dir, 0o700))
		must(t, os.WriteFile(filepath.Join(dir, "copy.db"), nil, 0o600))
	}
	must(t, os.Symlink(t.TempDir(), filepath.Join(temp, "agentfense-import-3")))
	lock, err := os.Open(running)
	must(t, err)
	defer lock.Close()
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	in, err := portable.OpenImport(t.Context(), file)
	must(t, err)
	must(t, in.Close())
	entries, err := os.ReadDir(temp)
	must(t, err)
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if diff := cmp.Diff([]string{"agentfense-import-2", "agentfense-import-3"}, left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}
