package badinput_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// disk is a small file system that can be filled to the last block and inode.
type disk struct {
	t   *testing.T
	dir string
	n   int // fillers
}

// besideProgram is what a small disk has beside the copy of the program in the state directory, in
// bytes: enough that it is not full, by the measure of the reserve, before the test fills it.
const besideProgram = 14 << 20

// mountDisk mounts a small file system on dir: ext4 on a loop device where the
// host has these, else tmpfs. It ends with the test.
func mountDisk(t *testing.T, dir string) *disk {
	t.Helper()
	program, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	return mountDiskOf(t, dir, program.Size()+besideProgram)
}

// mountDiskOf is mountDisk of a size in bytes.
func mountDiskOf(t *testing.T, dir string, size int64) *disk {
	t.Helper()
	ownMounts(t)
	if err := mountLoop(t, dir, size); err != nil {
		t.Logf("no ext4 on a loop device, so tmpfs: %v", err)
		mountTmpfs(t, dir, fmt.Sprintf("size=%d,nr_inodes=3000,mode=0700", size))
		return &disk{t: t, dir: dir}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return &disk{t: t, dir: dir}
}

func mountLoop(t *testing.T, dir string, size int64) error {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, size); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"mkfs.ext4", "-q", "-F", "-m", "0", "-N", "3000", image},
		{"mount", "-o", "loop", image, dir},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", args[0], err, out)
		}
	}
	t.Cleanup(func() { unmount(dir) })
	return unix.Mount("", dir, "", unix.MS_SHARED, "")
}

// maxFillers is more than the disk has inodes.
const maxFillers = 10000

// fill takes every block and inode that is free, until there is none: what runs
// may let some go meanwhile.
func (d *disk) fill() {
	d.t.Helper()
	d.mustBeSmall()
	for range 100 {
		d.fillInodes()
		d.fillBlocks()
		last := filepath.Join(d.dir, fmt.Sprintf("last%d", d.n))
		if err := unix.Mknod(last, unix.S_IFREG|0o600, 0); errors.Is(err, unix.ENOSPC) {
			return
		}
	}
	d.t.Fatal("the disk does not get full")
}

// fillInodes makes empty files in a directory of its own.
func (d *disk) fillInodes() {
	d.t.Helper()
	d.n++
	dir := filepath.Join(d.dir, fmt.Sprintf("filler%d", d.n))
	err := os.Mkdir(dir, 0o700)
	for i := 0; err == nil && i < maxFillers; i++ {
		err = unix.Mknod(filepath.Join(dir, fmt.Sprint(i)), unix.S_IFREG|0o600, 0)
	}
	if !errors.Is(err, unix.ENOSPC) {
		d.t.Fatalf("the disk has inodes without end: %v", err)
	}
}

// mustBeSmall keeps a mistake of the test from filling the host's disk.
func (d *disk) mustBeSmall() {
	d.t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(d.dir, &st); err != nil || int64(st.Blocks)*st.Bsize > 64<<20 {
		d.t.Fatalf("%s is not the small disk of this test: %v", d.dir, err)
	}
}

// fillBlocks appends to whatever filler there is.
func (d *disk) fillBlocks() {
	d.t.Helper()
	fillers, err := filepath.Glob(filepath.Join(d.dir, "filler*", "*"))
	if err != nil || len(fillers) == 0 {
		d.t.Fatalf("nothing to fill: %v", err)
	}
	f, err := os.OpenFile(fillers[0], os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 4096)
	for n := 0; err == nil && n < 64<<20/len(block); n++ {
		_, err = f.Write(block)
	}
	if !errors.Is(err, unix.ENOSPC) {
		d.t.Fatal(err)
	}
	if err := f.Sync(); err != nil && !errors.Is(err, unix.ENOSPC) {
		d.t.Fatal(err)
	}
}

// named is a further sandbox of the same home.
func named(s *harness.Sandbox, name string) *harness.Sandbox {
	other := *s
	other.Name = name
	return &other
}

const changeThings = "echo changed > old; rm gone; mkdir sub; echo new > sub/new; cp big copy; for i in 1 2 3 4 5 6 7 8 9; do echo $i > sub/$i; done"

var freeingSteps = [][]string{
	{"stop", "live"},
	{"stop", "idle"},
	{"discard", "partly", "gone"},
	{"discard", "partly", "old", "sub/new"},
	{"apply", "parts", "sub/new"},
	{"discard", "parts"},
	{"apply", "killed", "copy"},
	{"apply", "all"},
	{"discard", "thrown"},
	{"rm", "empty"},
	{"rm", "-f", "removed"},
	{"rm", "-f", "forced"},
	{"rm", "-f", "live", "killed"},
}

// A state directory on a disk without a free block or inode is freed by the
// verbs that free, and nothing is lost. What cannot start says what frees it.
func TestAFullStateDiskCanBeFreed(t *testing.T) {
	s := harness.New(t, binary, map[string]string{
		"old": "old\n", "gone": "gone\n", "big": strings.Repeat("0123456789abcdef", 1<<10), "many/": "",
	})
	d := mountDisk(t, s.Home)
	for _, name := range []string{"all", "parts", "thrown", "partly", "idle", "live", "removed", "forced", "empty", "killed"} {
		wantCode(t, named(s, name).Run(changeThings, "--preset", "full-access"), 0)
	}
	wantCode(t, s.Agentfense("discard", "empty"), 0)
	for _, name := range []string{"live", "forced"} {
		wantCode(t, s.Agentfense("run", "--name", name, "--detach"), 0)
		t.Cleanup(func() { s.Agentfense("stop", name) })
	}
	s.KilledAt("sync: one placed", "apply", "killed", "copy")
	d.fill()
	// No subtests: they run on other threads, which do not see the disk.
	wantCode(t, s.Agentfense("exec", "idle", "--", "true"), 125, "no space left on device", "or remove a sandbox")
	wantCode(t, s.Agentfense("run", "--name", "fresh", "--", "true"), 125, "no space left on device")
	prints(t, s.Agentfense("diff", "partly", "gone", "old", "--name-status"), "D\tgone\nM\told\n")
	prints(t, s.Agentfense("files", "cat", "partly", "old"), "changed\n")
	wantCode(t, s.Agentfense("ls"), 0)
	for _, step := range freeingSteps {
		d.fill()
		r := s.Agentfense(step...)
		if r.Code != 0 || strings.Contains(r.Stderr, "no space") {
			t.Errorf("%q: exit code %d, stdout %s, stderr %s", step, r.Code, r.Stdout, r.Stderr)
		}
	}
	if old, sub := s.Read("old"), s.Read("sub/new"); old != "changed\n" || sub != "new\n" {
		t.Errorf("applied, old holds %q and sub/new %q", old, sub)
	}
	if _, err := os.Lstat(filepath.Join(s.Source, "gone")); err == nil {
		t.Error("applied, gone is still there")
	}
	for _, name := range []string{"all", "thrown", "parts"} {
		prints(t, s.Agentfense("diff", name, "--name-status"), "")
	}
	r := s.Agentfense("ls", "--json")
	for _, name := range []string{"empty", "removed", "forced", "live", "killed"} {
		if strings.Contains(r.Stdout, `"`+name+`"`) {
			t.Errorf("%s is still listed", name)
		}
	}
	for _, name := range []string{"all", "parts", "thrown", "partly"} {
		wantCode(t, s.Agentfense("audit", name, "--verify"), 0)
	}
}

// A state directory of 0.3.0 has no reserve, and its locks are empty or not made
// yet. What removes writes nothing first.
func TestAFullStateDiskOfAnOlderVersionCanBeFreed(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"old": "old\n", "gone": "gone\n", "big": strings.Repeat("0123456789abcdef", 1<<10)})
	d := mountDisk(t, s.Home)
	for _, name := range []string{"idle", "removed", "forced", "thrown", "last"} {
		wantCode(t, named(s, name).Run(changeThings, "--preset", "full-access"), 0)
		for _, lock := range []string{"lock", "apply.lock"} {
			if err := os.Truncate(filepath.Join(s.Home, "sandboxes", name, lock), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, path := range []string{"reserve", "sandboxes/last/apply.lock"} {
		if err := os.RemoveAll(filepath.Join(s.Home, path)); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range [][]string{
		{"stop", "idle"}, {"rm", "-f", "removed"}, {"rm", "-f", "forced"}, {"discard", "thrown"}, {"rm", "thrown"}, {"discard", "last"},
	} {
		d.fill()
		if r := s.Agentfense(step...); r.Code != 0 {
			t.Errorf("%q: exit code %d, stdout %s, stderr %s", step, r.Code, r.Stdout, r.Stderr)
		}
		if err := os.RemoveAll(filepath.Join(s.Home, "reserve")); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, s.Agentfense("ls"), 0)
	if left, err := filepath.Glob(filepath.Join(s.Home, "sandboxes", ".gone-*", "layers")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}
