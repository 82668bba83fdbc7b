package guest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
)

func TestPlacesOfAMountTable(t *testing.T) {
	table := `21 1 0:20 / / ro,nosuid - tmpfs tmpfs rw,size=1k
22 21 8:1 /usr /usr ro,nosuid,relatime - ext4 /dev/sda1 rw
23 21 0:44 / /workspace/a\040b rw,nosuid - fuse.agentfense agentfense rw,user_id=0
24 21 0:45 / /data rw - squashfs /dev/loop0 ro,errors=continue
25 21 0:46 / /readme rw,romance - tmpfs tmpfs rw
broken
`
	want := []place{{"/usr", false}, {"/workspace/a b", true}, {"/data", false}, {"/readme", true}}
	if diff := cmp.Diff(want, placesOf(table), cmp.AllowUnexported(place{})); diff != "" {
		t.Error(diff)
	}
	if got := placesOf("21 1 0:20 / / rw - overlay overlay rw\n"); len(got) != 1 || !got[0].writable {
		t.Errorf("a root that is no tmpfs: %v", got)
	}
}

// TestWall bypasses the mounts: files outside of the places are out of reach, and read-only
// files cannot be written, although the mounts would permit both.
func TestWall(t *testing.T) {
	testenv.Landlock(t, landlockWithRefer)
	version := LandlockVersion()
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
	if err := restrict(version, []place{{at("open"), true}, {at("read"), false}, {at("gone"), true}}); err != nil {
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
		if tt.name == "truncate it" && version < landlockWithTruncate {
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
