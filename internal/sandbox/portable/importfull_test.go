package portable_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/portable"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// An import has the limits of the sandbox that it makes.
func TestAnImportBeyondALimit(t *testing.T) {
	box := newSandbox(t, nil, func(s *layer.Stack) {
		for i := range 10 {
			write(t, s, vpath.Root.Child(fmt.Sprint("f", i)), "x")
		}
	})
	file := filepath.Join(t.TempDir(), "file.db")
	_, err := portable.AgentFS(t.Context(), box, file, portable.Options{})
	must(t, err)
	for name, limits := range map[string]record.Limits{"bytes": {DiskBytes: 16 << 10}, "inodes": {DiskInodes: 9}} {
		like := &record.Sandbox{Home: box.Home, Stored: box.Record()}
		like.Stored.Limits = limits
		if _, _, err := importTo(like, file, "again", rules, false); !errdefs.Is(err, errdefs.Exhausted) {
			t.Errorf("too few %s: %v, want Exhausted", name, err)
		}
	}
	like := &record.Sandbox{Home: box.Home, Stored: box.Record()}
	like.Stored.Limits = record.Limits{DiskBytes: 1 << 20, DiskInodes: 10}
	_, _, err = importTo(like, file, "again", rules, false)
	must(t, err)
}

// An import for which the disk has no room leaves no sandbox and nothing of one, whether the
// contents or the inodes do not fit, or the copy of the file. With room again it succeeds.
func TestAnImportOnAFullDisk(t *testing.T) {
	testenv.Root(t)
	const files = 200
	box := newSandbox(t, nil, func(s *layer.Stack) {
		for i := range files {
			write(t, s, vpath.Root.Child(fmt.Sprint("f", i)), strings.Repeat("x", 20_000))
		}
	})
	file := filepath.Join(t.TempDir(), "file.db")
	_, err := portable.AgentFS(t.Context(), box, file, portable.Options{})
	must(t, err)
	for _, c := range []struct{ name, home, temp, room string }{
		{"bytes of the state directory", "size=3m", "size=32m", "size=64m"},
		{"inodes of the state directory", "size=32m,nr_inodes=150", "size=32m", "nr_inodes=10000"},
		{"bytes of the directory of temporary files", "size=32m", "size=2m", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk, temp := mounted(t, c.home), mounted(t, c.temp)
			t.Setenv("TMPDIR", temp)
			home, err := record.OpenHomeAt(filepath.Join(disk, "home"))
			must(t, err)
			like := &record.Sandbox{Home: home, Stored: box.Record()}
			before := namesBelow(t, home.Dir())
			if _, _, err := importTo(like, file, "again", rules, false); !errdefs.Is(err, errdefs.Exhausted) {
				t.Errorf("%v, want Exhausted", err)
			}
			if diff := cmp.Diff(before, namesBelow(t, home.Dir())); diff != "" {
				t.Errorf("the state directory (-before +now):\n%s", diff)
			}
			if left := namesBelow(t, temp); len(left) > 1 {
				t.Errorf("the directory of temporary files has %q", left)
			}
			if c.room == "" {
				return
			}
			must(t, unix.Mount("", disk, "tmpfs", unix.MS_REMOUNT, c.room))
			if _, result, err := importTo(like, file, "again", rules, false); err != nil || result.Entries != files {
				t.Errorf("with room: %d entries, %v, want %d", result.Entries, err, files)
			}
		})
	}
}

// mounted mounts a small file system for the time of the test.
func mounted(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, unix.Mount("full", dir, "tmpfs", 0, options+",mode=0700"))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// namesBelow returns the paths of dir and what is below it. It leaves out the reserve of the disk,
// and empty files of the state directory that every command makes.
func namesBelow(t *testing.T, dir string) (names []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		if rel != "lock" && rel != "pruned" && !strings.HasPrefix(rel, "reserve") {
			names = append(names, rel)
		}
		return err
	}))
	return names
}
