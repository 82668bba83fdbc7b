package codebase

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// A disk that is full refuses what is new and keeps what is old, and takes
// uploads again once there is room.
func TestDiskFull(t *testing.T) {
	testenv.Root(t)
	runtime.LockOSThread() // for good: the mount ends with the thread
	must(t, unix.Unshare(unix.CLONE_NEWNS))
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	home := t.TempDir()
	must(t, unix.Mount("tmpfs", home, "tmpfs", 0, "size=1m,nr_inodes=64,mode=0700"))
	t.Cleanup(func() { must(t, unix.Unmount(home, 0)) })
	s, err := Open(Options{Dir: filepath.Join(home, "codebases")})
	must(t, err)
	defer s.Close()
	c, err := s.Create(id.NewCodebase())
	must(t, err)
	put(t, c, "f", "old")
	_, err = upload(c, path(t, "f"), strings.Repeat("x", 2<<20), 0)
	wantKind(t, "an upload larger than the disk", err, errdefs.Exhausted)
	_, err = upload(c, path(t, "deep/down/g"), strings.Repeat("x", 2<<20), 0)
	wantKind(t, "a new file larger than the disk", err, errdefs.Exhausted)
	for i := 0; ; i++ {
		_, err = upload(c, path(t, strings.Repeat("d/", i)+"f"), "12345", 0)
		if err != nil {
			break
		}
	}
	wantKind(t, "more files than inodes", err, errdefs.Exhausted)
	if content, err := download(c, path(t, "f")); err != nil || content != "12345" && content != "old" {
		t.Errorf("the old file: %q, %v", content, err)
	}
	wantEmptyStaging(t, c)
	u := c.Usage()
	wantUsage(t, c, u.FileCount, u.SizeBytes)
	must(t, c.Remove(path(t, "d")))
	put(t, c, "again", "1")
	if _, err := os.Stat(filepath.Join(c.path(), filesDir, "deep")); !os.IsNotExist(err) {
		t.Error("directories were left for a file that found no room")
	}
}
