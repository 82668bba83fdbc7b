package landlock

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// TestWall bypasses the mounts: files outside of the places are out of reach, and read-only
// files cannot be written, although the mounts would permit both.
func TestWall(t *testing.T) {
	testenv.Landlock(t, withRefer)
	version := Version()
	const variable = "AGENTFENSE_TEST_WALL"
	if dir := os.Getenv(variable); dir != "" {
		behindTheWall(t, version, dir)
		return
	}
	dir := t.TempDir()
	for _, name := range []string{"open/a", "open/b", "read", "out"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "f"), []byte("x"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestWall$", "-test.count=1")
	cmd.Env = append(os.Environ(), variable+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("behind the wall: %v\n%s", err, out)
	}
}

func behindTheWall(t *testing.T, version int, dir string) {
	runtime.LockOSThread() // the restriction is the thread's
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := Restrict(version, Place{at("open"), true}, Place{at("read"), false}, Place{at("gone"), true}); err != nil {
		t.Fatal(err)
	}
	open := func(name string, flags int) error {
		fd, err := unix.Open(at(name), flags|unix.O_CLOEXEC, 0o644)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
	tests := []struct {
		name string
		err  error
		want error
	}{
		{"read what is open", open("open/a/f", unix.O_RDWR), nil},
		{"make there", open("open/a/new", unix.O_CREAT|unix.O_WRONLY), nil},
		{"truncate there", unix.Truncate(at("open/a/f"), 0), nil},
		{"rename across directories", unix.Rename(at("open/a/f"), at("open/b/g")), nil},
		{"link across directories", unix.Link(at("open/b/g"), at("open/a/h")), nil},
		{"make a socket there", unix.Mknod(at("open/s"), unix.S_IFSOCK|0o600, 0), nil},
		{"read what may be read", open("read/f", unix.O_RDONLY), nil},
		{"write it", open("read/f", unix.O_WRONLY), unix.EACCES},
		{"truncate it", unix.Truncate(at("read/f"), 0), unix.EACCES},
		{"remove it", unix.Unlink(at("read/f")), unix.EACCES},
		{"make beside it", open("read/new", unix.O_CREAT|unix.O_WRONLY), unix.EACCES},
		{"move out of reach", unix.Rename(at("open/b/g"), at("out/g")), unix.EACCES},
		{"read what is out of reach", open("out/f", unix.O_RDONLY), unix.EACCES},
		{"list any directory", open("out", unix.O_RDONLY|unix.O_DIRECTORY), nil},
	}
	for _, tt := range tests {
		if tt.name == "truncate it" && version < withTruncate {
			continue
		}
		if !errors.Is(tt.err, tt.want) || tt.want == nil && tt.err != nil {
			t.Errorf("%s: %v, want %v", tt.name, tt.err, tt.want)
		}
	}
	if err := exec.Command("/bin/true").Run(); !errors.Is(err, unix.EACCES) {
		t.Errorf("execute what is out of reach: %v, want EACCES", err)
	}
}
