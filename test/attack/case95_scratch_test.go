package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// What rules hide stays hidden in a scratch directory, nothing gets out of it, and nothing
// that the sandbox makes there is obeyed: not by overlayfs, not as a device, not as setuid.
func TestScratchDirectories(t *testing.T) {
	testenv.Overlay(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		files := map[string]string{"f": "", "src/f": "", "src/out/x": "", "nm/a/x": "visible", "nm/a/key.pem": "hidden", "nm/b/.env": "hidden", "nm/c/x": "visible", "nm/c/y": "visible"}
		s := harness.New(t, binary, files, who...)
		flags := []string{"--preset", "development", "--scratch", "nm", "--scratch", "src/out", "--scratch", "absent"}
		passes(t, s, attackScratch, []string{s.Home}, flags...)
		passes(t, s, lookAgainInScratch, nil)
		if r := s.Agentfense("diff", s.Name, "--name-status"); r.Code != 0 || r.Stdout != "" {
			t.Errorf("diff: %+v", r)
		}
		for path, content := range files {
			if got := s.Read(path); got != content {
				t.Errorf("%s of the source is %q", path, got)
			}
		}
		for dir, want := range map[string]int{".": 3, "nm": 3, "nm/a": 2, "src/out": 1} {
			entries, err := os.ReadDir(filepath.Join(s.Source, dir))
			if err != nil || len(entries) != want {
				t.Errorf("%s of the source has %v, %v", dir, entries, err)
			}
		}
	})
}

var attackScratch = program("attack a scratch directory", func(in *inside, args []string) {
	lookInScratch(in)
	in.works("make at a hidden name", os.WriteFile("nm/a/key.pem", []byte("own"), 0o600))
	in.works("remove it", os.Remove("nm/a/key.pem"))
	in.errno("open it again", opened("nm/a/key.pem", unix.O_RDONLY), unix.ENOENT)
	in.works("change a file", os.WriteFile("nm/a/x", []byte("changed"), 0o600))
	in.works("remove a directory whose rest is hidden", os.Remove("nm/b"))
	in.works("make it again", os.Mkdir("nm/b", 0o755))
	in.errno("what was hidden there", opened("nm/b/.env", unix.O_RDONLY), unix.ENOENT)

	in.errno("rename a directory", unix.Rename("nm/a", "nm/moved"), unix.EXDEV)
	in.errno("rename out", unix.Rename("nm/a/x", "out"), unix.EXDEV)
	in.errno("rename in", unix.Rename("f", "nm/f"), unix.EXDEV)
	in.errno("link out", unix.Link("nm/a/x", "out"), unix.EXDEV)
	for _, dir := range []string{"nm", "src", "src/out", "absent"} {
		in.errno("rename "+dir, unix.Rename(dir, "moved"), unix.EBUSY)
		in.errno("exchange "+dir, unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, "f", unix.RENAME_EXCHANGE), unix.EBUSY)
	}
	in.errno("remove a scratch directory", unix.Rmdir("absent"), unix.EBUSY)
	in.refused("unmount", unix.Unmount("nm", unix.MNT_DETACH), unix.EPERM, unix.ENOSYS)

	in.works("make a directory", os.Mkdir("nm/forged", 0o755))
	in.errno("make a whiteout", unix.Mknod("nm/whiteout", unix.S_IFCHR, 0), unix.EPERM)
	in.errno("make a device", unix.Mknod("nm/zero", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))), unix.EPERM)
	for name, value := range map[string]string{"opaque": "y", "redirect": "/a", "whiteout": "y", "metacopy": "", "origin": "x"} {
		for _, path := range []string{"nm/forged", "nm/c"} {
			in.refused("trusted attribute "+name, unix.Setxattr(path, "trusted.overlay."+name, []byte(value), 0), unix.EPERM, unix.EOPNOTSUPP)
			_ = unix.Setxattr(path, "user.overlay."+name, []byte(value), 0) // stored under another name, or refused
			_ = unix.Setxattr(path, "user.overlay.overlay."+name, []byte(value), 0)
		}
	}
	in.refused("file capabilities", unix.Setxattr("nm/a/x", "security.capability", make([]byte, 20), 0), unix.EPERM, unix.EINVAL)
	var fs unix.Statfs_t
	in.works("statfs", unix.Statfs("nm", &fs))
	in.is("nosuid and nodev", fs.Flags&(unix.ST_NOSUID|unix.ST_NODEV), int64(unix.ST_NOSUID|unix.ST_NODEV))
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	in.works("read the mounts", err)
	in.is("the mounts name the state directory", strings.Contains(string(mounts), args[0]), false)
})

// lookAgainInScratch runs after the directory was mounted anew.
var lookAgainInScratch = program("look again in a scratch directory", func(in *inside, _ []string) {
	lookInScratch(in)
	content, err := os.ReadFile("nm/a/x")
	in.works("read what was changed", err)
	in.is("what was changed", string(content), "changed")
	for dir, want := range map[string]int{"nm/forged": 0, "nm/c": 2, "nm/b": 0, "nm": 4, ".": 4} {
		entries, err := os.ReadDir(dir)
		in.works("list", err)
		in.is("the number of names in "+dir, len(entries), want)
	}
})

func lookInScratch(in *inside) {
	for _, name := range []string{"nm/a/key.pem", "nm/b/.env", "/workspace/nm/a/key.pem", "/proc/self/cwd/nm/a/key.pem", "nm/a/../b/.env"} {
		in.errno("open "+name, opened(name, unix.O_RDONLY), unix.ENOENT)
		var st unix.Stat_t
		in.errno("stat "+name, unix.Lstat(name, &st), unix.ENOENT)
		in.errno("rename "+name, unix.Rename(name, filepath.Dir(name)+"/seen"), unix.ENOENT)
	}
	entries, err := os.ReadDir("nm/a")
	in.works("list", err)
	in.is("the number of names in nm/a", len(entries), 1)
}

// What the caller may not read, nobody reads in a scratch directory: overlayfs has the
// rights of the supervisor there.
func TestScratchOfOthersFiles(t *testing.T) {
	testenv.Root(t) // to make files of others
	testenv.Overlay(t)
	s := harness.New(t, binary, map[string]string{"nm/x": ""}, harness.Ordinary)
	if err := os.Mkdir(s.Source+"/nm/dir", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/nm/file", "/nm/dir/file"} {
		if err := os.WriteFile(s.Source+path, []byte("of root"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	passes(t, s, readOthers, nil, "--preset", "full-access", "--scratch", "nm")
}

var readOthers = program("read what is another user's", func(in *inside, _ []string) {
	for range 2 {
		_, err := os.ReadFile("nm/file")
		in.refused("read", err, unix.EACCES)
		_, err = os.ReadFile("nm/dir/file")
		in.refused("read below", err, unix.EACCES)
		_, err = os.ReadDir("nm/dir")
		in.refused("list", err, unix.EACCES)
		_ = os.Chmod("nm/file", 0o666) // as its owner inside
		_ = os.Chmod("nm/dir", 0o777)
		_ = os.Rename("nm/file", "nm/renamed")
		_ = os.Rename("nm/renamed", "nm/file")
	}
})

// The names are the sandbox's: a link as a scratch directory, or above one, leads nowhere,
// and no character of a name ends an option of overlayfs.
func TestScratchNames(t *testing.T) {
	testenv.Overlay(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		outside := mountedDir(t)
		s := harness.New(t, binary, map[string]string{"d/x": ""}, who...)
		for link, target := range map[string]string{"link": outside, "dangling": outside + "/none", "inner": "d", "proc": "/proc/self/root"} {
			if err := os.Symlink(target, filepath.Join(s.Source, link)); err != nil {
				t.Fatal(err)
			}
		}
		prints(t, s, "mkdir up && ln -s "+outside+" up/nm && ln -s d made", "", "--preset", "development")
		for name, want := range map[string]string{
			"link": "symbolic link", "dangling": "symbolic link", "inner": "symbolic link", "link/tool": "symbolic link", "proc/etc": "symbolic link",
			"made": "symbolic link", "up/nm": "symbolic link", "d/x": "no directory", "none/nm": `"none"`,
		} {
			if r := s.Run("ls", "--scratch", name); r.Code != 125 || r.Stdout != "" || !strings.Contains(r.Stderr, want) {
				t.Errorf("--scratch %s: %+v, want %q", name, r, want)
			}
		}
		odd := `a:b,upperdir=\x="` + "\n\xff"
		s.Name = "odd"
		prints(t, s, `echo x > "$1/f" 2>/dev/null || for d in a:*; do echo x > "$d/f"; done; cat a:*/f`, "x\n", "--preset", "development", "--scratch", odd, "--scratch", "a")
		prints(t, s, "cat a:*/f; ls a", "x\n")
		if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
			t.Errorf("the directory outside has %v, %v", entries, err)
		}
		if r := s.Agentfense("stop", "attack"); r.Code != 0 {
			t.Errorf("stop: %+v", r)
		}
	})
}
