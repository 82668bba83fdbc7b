//go:build linux

package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/client"
)

func TestFilesAreWhatACommandSees(t *testing.T) {
	box := local(t, "agent-safe", map[string]string{"a": "a\n", "d/b": "bb\n", "d/x.key": "secret\n", ".env": "secret\n", "output/.keep": ""})
	ctx := t.Context()
	var walked []string
	for e, err := range box.Files.Walk(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		walked = append(walked, e.Path)
	}
	if diff := cmp.Diff([]string{"a", "d", "d/b", "output", "output/.keep"}, walked); diff != "" {
		t.Error(diff)
	}
	for _, name := range []string{"d/b", "/d/b", "/workspace/d/b"} {
		if text, err := box.Files.Read(ctx, name); err != nil || string(text) != "bb\n" {
			t.Errorf("%s: %q %v", name, text, err)
		}
	}
	if _, err := box.Files.Read(ctx, "d/x.key"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a hidden file: %v", err)
	}
	if err := box.Files.Write(ctx, "a", strings.NewReader("x")); !errors.Is(err, client.ErrDenied) {
		t.Errorf("a file that may not be written: %v", err)
	}
	if err := box.Files.Write(ctx, "a/b", strings.NewReader("x")); !errors.Is(err, client.ErrNotFound) && !errors.Is(err, client.ErrExists) {
		t.Errorf("below a file: %v", err)
	}
	content := bytes.Repeat([]byte{0, 1, 254, '\n'}, 100_000)
	if err := box.Files.Write(ctx, "output/new/it's \xff", bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	if got, err := box.Files.Read(ctx, "output/new/it's \xff"); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	e, err := box.Files.Stat(ctx, "output/new/it's \xff")
	if err != nil || e.SizeBytes != int64(len(content)) || !e.Changed || e.Permission != client.Write || e.Name() != "it's \xff" || e.IsDir() {
		t.Errorf("%+v %v", e, err)
	}
	if root, err := box.Files.Stat(ctx, ""); err != nil || !root.IsDir() || root.Path != "" || root.Name() != "." {
		t.Errorf("%+v %v", root, err)
	}
	if changes, err := box.DiffNames(ctx, "output"); err != nil || len(changes) == 0 || changes[len(changes)-1].Path != "output/new/it's \xff" || len(changes[0].Patch) > 0 {
		t.Errorf("%+v %v", changes, err)
	}
}

// It is more than one message of the server.
func TestADirectoryOfManyFilesIsListedWhole(t *testing.T) {
	const most = 16_000
	dir := t.TempDir()
	for i := range most {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%0250dx", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	box, err := client.FromLocal(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	list, err := fs.ReadDir(box.Files.FS(t.Context()), ".")
	if err != nil || len(list) != most || list[most-1].Name() != fmt.Sprintf("%0250dx", most-1) {
		t.Errorf("%d files, %v", len(list), err)
	}
	if out, err := exec.Command(binary, "files", "ls", box.ID).Output(); err != nil || bytes.Count(out, []byte("\n")) != most {
		t.Errorf("files ls lists %d, %v", bytes.Count(out, []byte("\n")), err)
	}
}

// A command made it, and it takes no room on its disk.
func TestASparseFileDoesNotFillTheMemory(t *testing.T) {
	box := local(t, "full-access", map[string]string{"a": "a\n"})
	run(t, box, "truncate -s 1T huge; truncate -s 64M most; ln -s huge link")
	view := box.Files.FS(t.Context())
	for name, read := range map[string]func() ([]byte, error){
		"Read":             func() ([]byte, error) { return box.Files.Read(t.Context(), "huge") },
		"ReadFile":         func() ([]byte, error) { return fs.ReadFile(view, "huge") },
		"ReadFile by link": func() ([]byte, error) { return fs.ReadFile(view, "link") },
	} {
		content, err := read()
		if content != nil || !errors.Is(err, client.ErrExhausted) || !strings.Contains(err.Error(), "larger than 67108864 bytes: read it in pieces, with Copy") {
			t.Errorf("%s: %d bytes, %v", name, len(content), err)
		}
	}
	if content, err := fs.ReadFile(view, "most"); err != nil || len(content) != client.MaxRead {
		t.Errorf("%d bytes, %v", len(content), err)
	}
	f, err := view.Open("huge")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n, err := io.ReadFull(f, make([]byte, 1<<20)); err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestViewIsAFileSystem(t *testing.T) {
	box := local(t, "development", map[string]string{
		"a": "a\n", "d/b": "bb\n", "d/e/c": strings.Repeat("c", 200_000), ".env": "secret\n", "workspace/x": "deep\n", "x": "flat\n",
	})
	run(t, box, "mkdir empty; ln -s d/b link; ln -s /workspace/d/e far; ln -s ../outside out; echo new >d/new")
	view := box.Files.FS(t.Context())
	if err := fstest.TestFS(without{view, "out"}, "a", "d/b", "d/e/c", "d/new", "empty", "link", "far", "workspace/x", "x"); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{"link": "bb\n", "workspace/x": "deep\n", "x": "flat\n"} {
		if text, err := fs.ReadFile(view, name); err != nil || string(text) != want {
			t.Errorf("%s: %q %v", name, text, err)
		}
	}
	if found, err := fs.Glob(view, "d/*"); err != nil || strings.Join(found, " ") != "d/b d/e d/new" {
		t.Errorf("%v %v", found, err)
	}
	if list, err := view.ReadDir("far"); err != nil || len(list) != 1 || list[0].Name() != "c" {
		t.Errorf("%v %v", list, err)
	}
	for _, name := range []string{".env", "none", "out"} {
		if _, err := fs.ReadFile(view, name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := box.SetPolicy(t.Context(), client.Policy{Rules: []client.PermissionRule{{Pattern: "**/*", Permission: client.View}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := fs.ReadFile(view, "a"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a file that is only shown: %v", err)
	}
	if _, err := box.Files.Read(t.Context(), "a"); !errors.Is(err, client.ErrDenied) {
		t.Errorf("a file that is only shown: %v", err)
	}
}

// without is a file system less one name of its root, which fstest cannot open.
type without struct {
	fs.ReadDirFS
	name string
}

func (w without) Open(name string) (fs.File, error) {
	f, err := w.ReadDirFS.Open(name)
	if dir, ok := f.(fs.ReadDirFile); ok && name == "." && err == nil {
		return withoutDir{dir, w.name}, nil
	}
	return f, err
}

func (w without) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := w.ReadDirFS.ReadDir(name)
	return less(list, w.name), err
}

type withoutDir struct {
	fs.ReadDirFile
	name string
}

func (d withoutDir) ReadDir(n int) ([]fs.DirEntry, error) {
	list, err := d.ReadDirFile.ReadDir(n)
	return less(list, d.name), err
}

func less(list []fs.DirEntry, name string) []fs.DirEntry {
	var rest []fs.DirEntry
	for _, e := range list {
		if e.Name() != name {
			rest = append(rest, e)
		}
	}
	return rest
}
