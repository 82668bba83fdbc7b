package viewfs_test

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/agentfense/agentfense/internal/transfer/viewfs"
)

// view is a View of files by path: a directory has the content "dir", and "-> target" is a
// symbolic link.
type view map[string]string

func (v view) Stat(name string) (viewfs.Entry, error) {
	content, ok := v[name]
	target, isLink := strings.CutPrefix(content, "-> ")
	switch {
	case name == "" || content == "dir":
		return viewfs.Entry{Path: name, Mode: fs.ModeDir | 0o755}, nil
	case !ok:
		return viewfs.Entry{}, fs.ErrNotExist
	case isLink:
		return viewfs.Entry{Path: name, Mode: fs.ModeSymlink | 0o777, SymlinkTarget: target}, nil
	}
	return viewfs.Entry{Path: name, Mode: 0o644, SizeBytes: int64(len(content)), Sys: content}, nil
}

func (v view) List(name string) ([]viewfs.Entry, error) {
	var list []viewfs.Entry
	for p := range v {
		if dir := path.Dir(p); dir == name || name == "" && dir == "." {
			e, err := v.Stat(p)
			if err != nil {
				return nil, err
			}
			list = append(list, e)
		}
	}
	return list, nil
}

func (v view) Read(name string) ([]byte, error) { return []byte(v[name]), nil }

func (v view) Open(name string) (io.ReadCloser, error) {
	if v[name] == "secret" {
		return nil, fs.ErrPermission
	}
	return io.NopCloser(strings.NewReader(v[name])), nil
}

func TestItIsAFileSystem(t *testing.T) {
	v := viewfs.New(view{"a": "1\n", "d": "dir", "d/b": "22\n", "d/e": "dir", "l": "-> d/b", "abs": "-> /workspace/a"})
	if err := fstest.TestFS(v, "a", "d/b", "d/e"); err != nil {
		t.Error(err)
	}
	entries, err := v.ReadDir("d")
	if names := slices.Collect(func(yield func(string) bool) {
		for _, e := range entries {
			yield(e.Name())
		}
	}); err != nil || !slices.Equal(names, []string{"b", "e"}) {
		t.Errorf("ReadDir = %q, %v", names, err)
	}
}

func TestLinksAreFollowedInTheWorkspace(t *testing.T) {
	v := viewfs.New(view{"a": "1\n", "d": "dir", "d/up": "-> ../a", "abs": "-> /workspace/a", "out": "-> ../../etc/passwd", "root": "-> /etc/passwd", "loop": "-> loop"})
	for name, want := range map[string]string{"d/up": "1\n", "abs": "1\n"} {
		if got, err := v.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("ReadFile(%s) = %q, %v, want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"out", "root"} {
		if _, err := v.Open(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Open(%s) = %v, want fs.ErrNotExist", name, err)
		}
	}
	if _, err := v.Open("loop"); err == nil {
		t.Error("a link to itself was followed")
	}
}

func TestAFileThatIsShownAndMayNotBeRead(t *testing.T) {
	f, err := viewfs.New(view{"s": "secret"}).Open("s")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(f); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("Read = %v, want fs.ErrPermission", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := f.Read(make([]byte, 1)); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Read after Close = %v, want fs.ErrClosed", err)
	}
}
