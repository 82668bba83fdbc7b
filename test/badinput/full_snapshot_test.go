package badinput_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// free removes what fill made.
func (d *disk) free() {
	d.t.Helper()
	for _, pattern := range []string{"filler*", "last*"} {
		made, err := filepath.Glob(filepath.Join(d.dir, pattern))
		if err != nil {
			d.t.Fatal(err)
		}
		for _, path := range made {
			if err := os.RemoveAll(path); err != nil {
				d.t.Fatal(err)
			}
		}
	}
}

// room frees some bytes and inodes of a full disk, so that what runs gets further.
func (d *disk) room(bytes int64) {
	d.t.Helper()
	if bytes == 0 {
		return
	}
	fillers, err := filepath.Glob(filepath.Join(d.dir, "filler*", "*"))
	if err != nil {
		d.t.Fatal(err)
	}
	inodes := 50
	for _, path := range fillers {
		info, err := os.Lstat(path)
		switch {
		case err != nil:
			d.t.Fatal(err)
		case info.Size() == 0 && inodes > 0:
			inodes--
			err = os.Remove(path)
		case info.Size() > 0 && bytes > 0:
			freed := min(bytes, info.Size())
			bytes -= freed
			err = os.Truncate(path, info.Size()-freed)
		}
		if err != nil {
			d.t.Fatal(err)
		}
	}
}

// onFull runs a verb while the disk has room bytes, and again on an empty one if it said that there
// was no space, which full is a part of. between checks what the first one left.
func (d *disk) onFull(s *harness.Sandbox, full string, room int64, between func(done bool), args ...string) {
	d.t.Helper()
	d.fill()
	d.room(room)
	r := s.Agentfense(args...)
	d.free()
	if r.Code != 0 && !strings.Contains(r.Stderr, full) {
		d.t.Errorf("%q on a full disk: exit code %d, stderr %s", args, r.Code, r.Stderr)
	}
	between(r.Code == 0)
	if r.Code != 0 {
		d.t.Logf("%q: %s", args, r.Stderr)
		wantCode(d.t, s.Agentfense(args...), 0)
	}
}

// stateDisk is what is said of a full disk of the state directory.
const stateDisk = "no space left on device: the disk of the state directory is full; to free it, "

// A snapshot, a fork, a restore, a discard that copies frozen layers, an undo and an export on a
// disk without a free block or inode do all or nothing, say why, and work once there is room.
func TestAFullDiskLosesNoState(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"f": "source\n", "g": "source\n"})
	d := mountDiskOf(t, s.Home, 60<<20)
	shows := func(name, want string) {
		t.Helper()
		prints(t, s.Agentfense("exec", name, "--", "sh", "-c", "cat f g; head -c 4 big"), want)
	}
	wantCode(t, s.Run("echo 1 > f; yes big1 | head -c 6000000 > big", "--preset", "full-access"), 0)
	wantCode(t, s.Agentfense("snapshot", s.Name, "one"), 0)
	wantCode(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", "echo 2 > f; echo 2 > g"), 0)

	d.onFull(s, stateDisk, 0, func(done bool) {
		if !done {
			t.Error("a snapshot does not use the reserve")
		}
		shows(s.Name, "2\n2\nbig1")
	}, "snapshot", s.Name, "two")
	d.onFull(s, stateDisk, 0, func(done bool) {
		if list := s.Agentfense("ls", "--quiet").Stdout; !done && list != s.Name+"\n" {
			t.Errorf("after a fork on a full disk there are %q", list)
		}
		shows(s.Name, "2\n2\nbig1")
	}, "fork", s.Name, "fork")
	shows("fork", "2\n2\nbig1")
	d.onFull(s, stateDisk, 0, func(done bool) {
		if !done {
			shows(s.Name, "2\n2\nbig1")
		}
	}, "restore", s.Name, "one")
	shows(s.Name, "1\nsource\nbig1")
	wantCode(t, s.Agentfense("restore", s.Name, "two"), 0)
	shows(s.Name, "2\n2\nbig1")

	copies := 0
	d.onFull(s, stateDisk, 0, func(done bool) {
		if !done {
			copies++
			shows(s.Name, "2\n2\nbig1")
		}
	}, "discard", s.Name, "g")
	if copies == 0 {
		t.Error("6 MB were copied to a full disk")
	}
	shows(s.Name, "2\nsource\nbig1")
	prints(t, s.Agentfense("diff", s.Name+"@two", s.Name, "--name-status"), "M\tg\n")

	wantCode(t, s.Agentfense("apply", s.Name, "f"), 0)
	d.onFull(s, stateDisk, 0, func(done bool) {
		if f := s.Read("f"); !done && f != "2\n" {
			t.Errorf("after an undo on a full disk f holds %q", f)
		}
	}, "undo", "--yes")
	if f := s.Read("f"); f != "source\n" {
		t.Errorf("after an undo f holds %q", f)
	}
	shows(s.Name, "2\nsource\nbig1")
	wantCode(t, s.Agentfense("audit", s.Name, "--verify"), 0)
	for _, name := range []string{s.Name, "fork"} {
		wantCode(t, s.Agentfense("rm", "--force", name), 0)
	}
	if left, err := os.ReadDir(filepath.Join(s.Home, "frozen")); err != nil || len(left) > 0 {
		t.Errorf("layers are left: %v, %v", left, err)
	}
}

// An export to a full disk leaves no file, in each format, and the changes stay.
func TestAnExportToAFullDiskLeavesNothing(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"f": "source\n"})
	to := t.TempDir()
	d := mountDisk(t, to)
	wantCode(t, s.Run("echo 1 > f; for i in 1 2 3 4; do yes text$i | head -c 900000 > big$i; done", "--preset", "full-access"), 0)
	for i, format := range []string{"agentfs", "tar", "oci", "patch"} {
		file := filepath.Join(to, "changes."+format)
		d.onFull(s, "no space left on device", int64(i%2)<<20, func(done bool) {
			if done {
				t.Errorf("%s: written to a full disk", format)
			}
			entries, err := os.ReadDir(to)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if e.Name() != "lost+found" {
					t.Errorf("%s: an export to a full disk leaves %s", format, e.Name())
				}
			}
		}, "export", s.Name, file, "--format", format)
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
	}
	prints(t, s.Agentfense("diff", s.Name, "--name-status"), "A\tbig1\nA\tbig2\nA\tbig3\nA\tbig4\nM\tf\n")
}

// Forks of one sandbox start at once, run beside each other, each with its own changes, and end at
// once: nothing of them goes on.
func TestForksThatRunAtOnce(t *testing.T) {
	const forks = 8
	s := harness.New(t, binary, map[string]string{"f": "source\n"})
	wantCode(t, s.Run("echo 1 > f", "--preset", "full-access"), 0)
	names := make([]string, forks)
	for i := range names {
		names[i] = fmt.Sprintf("fork%d", i)
	}
	wantCode(t, s.Agentfense(append([]string{"fork", s.Name}, names...)...), 0)
	for _, r := range atOnce(forks, func(n int) harness.Result {
		return s.Agentfense("run", "--name", names[n], "--detach", "--preset", "full-access", "--", "sleep", "600")
	}) {
		wantCode(t, r, 0)
	}
	for n, r := range atOnce(forks, func(n int) harness.Result {
		return s.Agentfense("exec", names[n], "--", "sh", "-c", fmt.Sprintf("cat f; echo %d > f; cat f", n))
	}) {
		prints(t, r, fmt.Sprintf("1\n%d\n", n))
	}
	for _, r := range atOnce(forks, func(n int) harness.Result { return s.Agentfense("stop", names[n]) }) {
		wantCode(t, r, 0)
	}
	if running := s.Agentfense("ls").Stdout; strings.Contains(running, "running") {
		t.Errorf("after the stop:\n%s", running)
	}
	prints(t, s.Agentfense("exec", s.Name, "--", "cat", "f"), "1\n")
	for n, r := range atOnce(forks, func(n int) harness.Result { return s.Agentfense("exec", names[n], "--", "cat", "f") }) {
		prints(t, r, fmt.Sprintf("%d\n", n))
	}
}
