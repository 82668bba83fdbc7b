package safefs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

func openDirectory(t *testing.T, path string) int {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return int(f.Fd())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOpenStaysBeneath(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "dir")
	must(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	for _, path := range []string{"outside", "dir/file", "dir/sub/file"} {
		must(t, os.WriteFile(filepath.Join(base, path), []byte(path), 0o644))
	}
	must(t, os.Symlink("sub", filepath.Join(dir, "inner")))
	must(t, os.Symlink("../outside", filepath.Join(dir, "leaf")))
	must(t, os.Symlink("/proc/self/root", filepath.Join(dir, "magic")))
	root := openDirectory(t, dir)
	for _, c := range []struct {
		name, path string
		flags      int
		want       error
	}{
		{"a file", "file", unix.O_RDONLY, nil},
		{"a file in a directory", "sub/file", unix.O_RDONLY, nil},
		{"a step up", "../outside", unix.O_RDONLY, unix.EXDEV},
		{"a step up and down again is beneath", "sub/../file", unix.O_RDONLY, nil},
		{"an absolute path", filepath.Join(dir, "file"), unix.O_RDONLY, unix.EXDEV},
		{"a link to a directory beneath", "inner/file", unix.O_RDONLY, unix.ELOOP},
		{"a link at the end", "leaf", unix.O_RDONLY, unix.ELOOP},
		{"a link at the end, itself", "leaf", unix.O_PATH | unix.O_NOFOLLOW, nil},
		{"a magic link", "magic/etc", unix.O_RDONLY, unix.ELOOP},
		{"an absent name", "absent", unix.O_RDONLY, unix.ENOENT},
	} {
		fd, err := Open(root, c.path, c.flags, 0)
		if err == nil {
			unix.Close(fd)
		}
		if err != c.want {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
}

func TestOpenDirTakesPathsOfAnyLength(t *testing.T) {
	root := openDirectory(t, t.TempDir())
	name := strings.Repeat("n", 200)
	var rel []string
	at := root
	for range 50 {
		must(t, unix.Mkdirat(at, name, 0o755))
		next, err := Open(at, name, unix.O_PATH|unix.O_DIRECTORY, 0)
		must(t, err)
		if at != root {
			unix.Close(at)
		}
		at, rel = next, append(rel, name)
	}
	defer unix.Close(at)
	fd, err := OpenDir(root, strings.Join(rel, "/"), unix.O_RDONLY)
	must(t, err)
	defer unix.Close(fd)
	var want, got unix.Stat_t
	must(t, unix.Fstat(at, &want))
	must(t, unix.Fstat(fd, &got))
	if got.Ino != want.Ino {
		t.Error("it is another directory")
	}
	if _, err := OpenDir(root, strings.Join(rel, "/")+"/absent", unix.O_PATH); err != unix.ENOENT {
		t.Errorf("an absent directory: %v", err)
	}
}

func TestRemoveTreeRemovesAnythingAndFollowsNothing(t *testing.T) {
	base := t.TempDir()
	kept := filepath.Join(base, "kept")
	must(t, os.WriteFile(kept, nil, 0o644))
	tree := filepath.Join(base, "tree")
	must(t, os.Mkdir(tree, 0o755))
	must(t, os.Symlink("..", filepath.Join(tree, "up")))
	must(t, unix.Mkfifo(filepath.Join(tree, "fifo"), 0o600))
	must(t, os.MkdirAll(filepath.Join(tree, "closed", "inner"), 0o755))
	must(t, os.Chmod(filepath.Join(tree, "closed"), 0))
	at := openDirectory(t, tree)
	for range 2*maxDepth + 10 {
		must(t, unix.Mkdirat(at, "d", 0o755))
		next, err := Open(at, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		t.Cleanup(func() { unix.Close(next) })
		at = next
	}
	for _, what := range []string{"a tree", "an absent one"} {
		if err := RemoveTree(tree); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	entries, err := os.ReadDir(base)
	must(t, err)
	if len(entries) != 1 || entries[0].Name() != "kept" {
		t.Errorf("left: %v", entries)
	}
}

func TestWriteDurablyReplaces(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{"first", "second"} {
		must(t, WriteDurably(dir, "f", []byte(text)))
		got, err := os.ReadFile(filepath.Join(dir, "f"))
		must(t, err)
		if string(got) != text {
			t.Errorf("got %q, want %q", got, text)
		}
	}
	if err := WriteDurably(filepath.Join(dir, "absent"), "f", nil); Kind(err) != errdefs.NotFound {
		t.Errorf("in an absent directory: %v", err)
	}
}
