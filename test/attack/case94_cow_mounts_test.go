package attack_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// Whatever a program does in a mount that it may write to, the source keeps what it has, and
// nothing moves between the workspace and the mounts but by a copy.
func TestNothingReachesTheSourceOfACowMount(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"f": "mine", "d/x": ""}, who...)
		dir, other := mountedDir(t), mountedDir(t)
		write(t, s, dir, "file", "sub/x", "sub/deep/y")
		write(t, s, other, "file")
		if err := os.Symlink(other+"/file", dir+"/out"); err != nil {
			t.Fatal(err)
		}
		before := treeOf(t, dir) + treeOf(t, other)
		passes(t, s, writeInMount, []string{other}, "--preset", "full-access", "--mount", dir+":/opt/cow:cow", "--mount", other+":/opt/ro")
		if after := treeOf(t, dir) + treeOf(t, other); after != before {
			t.Errorf("the sources hold\n%s\nbefore they held\n%s", after, before)
		}
	})
}

var writeInMount = program("write in a mount", func(in *inside, args []string) {
	const file = "/opt/cow/file"
	for _, place := range []string{"f", "/opt/ro/file"} {
		in.errno("rename out over "+place, unix.Rename(file, place), unix.EXDEV)
		in.errno("rename in from "+place, unix.Rename(place, file), unix.EXDEV)
		in.errno("exchange with "+place, unix.Renameat2(unix.AT_FDCWD, place, unix.AT_FDCWD, file, unix.RENAME_EXCHANGE), unix.EXDEV)
		in.errno("link in from "+place, unix.Link(place, "/opt/cow/linked"), unix.EXDEV)
	}
	in.errno("rename a directory in", unix.Rename("d", "/opt/cow/d"), unix.EXDEV)
	in.errno("link out", unix.Link(file, "linked"), unix.EXDEV)
	in.errno("link out to what may only be read", unix.Link(file, "/opt/ro/linked"), unix.EXDEV)
	in.errno("follow a link out", opened("/opt/cow/out", unix.O_WRONLY), unix.ENOENT)
	_, err := os.Stat("/opt/cow/.." + args[0])
	in.errno("climb out", err, unix.ENOENT)
	in.refused("write to what may only be read", opened("/opt/ro/file", unix.O_WRONLY), unix.EACCES)

	fd, err := unix.Open(file, unix.O_RDWR|unix.O_CLOEXEC, 0)
	in.works("open for writing", err)
	mapped, err := unix.Mmap(fd, 0, 4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	in.works("map for writing", err)
	copy(mapped, "mine")
	in.works("write the mapped page", unix.Msync(mapped, unix.MS_SYNC))
	in.works("remove the open file", unix.Unlink(file))
	_, err = unix.Pwrite(fd, []byte("after"), 0)
	in.works("write to the removed file", err)
	in.works("make it anew", os.WriteFile(file, []byte("mine"), 0o600))
	in.works("rename a directory", unix.Rename("/opt/cow/sub", "/opt/cow/moved"))
	in.works("change what was in it", os.WriteFile("/opt/cow/moved/deep/y", []byte("mine"), 0o600))
	in.works("change a mode", unix.Chmod("/opt/cow/moved/x", 0o777))
	in.works("change times", unix.UtimesNanoAt(unix.AT_FDCWD, "/opt/cow/tool", make([]unix.Timespec, 2), 0))
	in.works("truncate", unix.Truncate("/opt/cow/moved/x", 0))
	in.works("replace a link", os.Remove("/opt/cow/out"))
	in.works("make a link", unix.Symlink("/etc/passwd", "/opt/cow/out"))
	in.works("make a directory where one was", unix.Mkdir("/opt/cow/sub", 0o755))
	in.works("fill it", os.WriteFile("/opt/cow/sub/x", []byte("mine"), 0o644))
	in.works("remove all", os.RemoveAll("/opt/cow/moved"))
	in.works("link", unix.Link("/opt/cow/sub/x", "/opt/cow/x"))
	in.works("change one of two names", os.WriteFile("/opt/cow/x", []byte("both"), 0o644))
})

// What a preset hides in a mount that may be written to gives no sign, does not come out by
// another name, and is neither changed nor removed by what is applied.
func TestWritableMountsKeepWhatTheirRulesHide(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"f": "mine"}, who...)
		dir := mountedDir(t)
		write(t, s, dir, "file", ".env", "tool/id_rsa", "gone/secrets/token", "gone/shown")
		passes(t, s, makeHidden, nil, "--preset", "full-access", "--mount", dir+":/opt/tools:development")
		r := s.Agentfense("apply", s.Name, "--in", "tools", "--latest")
		if r.Code != 0 || !strings.Contains(r.Stdout, "left_out\tA\ttools:/.env") || !strings.Contains(r.Stdout, "applied\tM\ttools:/file") {
			t.Errorf("apply: %+v", r)
		}
		for _, name := range []string{".env", "tool/id_rsa", "gone/secrets/token"} {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != "theirs "+name {
				t.Errorf("%s holds %q, %v", name, got, err)
			}
		}
		if _, err := os.Lstat(dir + "/gone/shown"); err == nil {
			t.Error("what was removed is still in the source")
		}
	})
}

var makeHidden = program("write over what a mount hides", func(in *inside, _ []string) {
	for _, name := range []string{".env", "tool/id_rsa", "tool/../.env", "gone/secrets/token", "gone/secrets"} {
		in.errno("open "+name, opened("/opt/tools/"+name, unix.O_RDONLY), unix.ENOENT)
	}
	in.errno("rename what is hidden", unix.Rename("/opt/tools/.env", "/opt/tools/seen"), unix.ENOENT)
	in.errno("link it", unix.Link("/opt/tools/.env", "/opt/tools/seen"), unix.ENOENT)
	in.errno("rename it out", unix.Rename("/opt/tools/.env", "seen"), unix.EXDEV)
	in.works("make an own one", os.WriteFile("/opt/tools/.env", []byte("mine"), 0o600))
	got, err := os.ReadFile("/opt/tools/.env")
	in.works("read it", err)
	in.is("what was made", string(got), "mine")
	in.errno("make it anew", opened("/opt/tools/.env", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY), unix.EEXIST)
	in.works("move it away", unix.Rename("/opt/tools/.env", "/opt/tools/moved"))
	in.errno("open what is hidden again", opened("/opt/tools/.env", unix.O_RDONLY), unix.ENOENT)
	in.works("make another", os.WriteFile("/opt/tools/.env", []byte("mine"), 0o600))
	in.works("change what shows", os.WriteFile("/opt/tools/file", []byte("mine"), 0o600))
	in.works("remove a directory with something hidden", os.RemoveAll("/opt/tools/gone"))
})

// No mode that a program gives to what it makes in a mount keeps it from a review.
func TestModesHideNoChangeOfAMount(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"f": "mine"}, who...)
		dir := mountedDir(t)
		write(t, s, dir, "file")
		prints(t, s, "cd /opt/cow; mkdir d; echo new >d/closed; chmod 0 d/closed d; chmod 0 file", "",
			"--preset", "full-access", "--mount", dir+":/opt/cow:cow")
		if got := agentfense(t, s, "diff", s.Name, "--in", "cow", "--name-status"); got != "A\tcow:/d/closed\nM\tcow:/file\n" {
			t.Errorf("diff --in cow prints %q", got)
		}
		if r := s.Agentfense("rm", s.Name); r.Code == 0 || !strings.Contains(r.Stderr, "2 changes not applied") {
			t.Errorf("rm: %+v", r)
		}
		if r := s.Run("true", "--mount", dir+":/opt/cow"); r.Code != 125 || !strings.Contains(r.Stderr, "would be lost") {
			t.Errorf("another mount in its place: %+v", r)
		}
		agentfense(t, s, "apply", s.Name, "--all")
		for path, want := range map[string]string{"/d": "d---------", "/file": "----------"} {
			if st, err := os.Lstat(dir + path); err != nil || st.Mode().String() != want {
				t.Errorf("%s: %v, %v", path, st, err)
			}
		}
		agentfense(t, s, "rm", s.Name)
	})
}

// write makes files below dir, each of which says its name. All of dir is the user's.
func write(t *testing.T, s *harness.Sandbox, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("theirs "+name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		s.Own(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// treeOf describes everything in dir: names, identities, modes, times and contents.
func treeOf(t *testing.T, dir string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		content := []byte(nil)
		if err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			content, err = os.ReadFile(path)
		}
		lines = append(lines, fmt.Sprint(path, st.Ino, st.Mode, st.Uid, st.Mtim, st.Ctim, string(content)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
