package attack_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// A path with permission none does not exist for any system call. Under a strict rule
// creating it is refused, whether or not the source has it.
func TestHiddenIsAbsent(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{
			"secret.pem": "secret", "vault.pem/inner": "secret", "plain": "plain", "dir/": "",
		}, who...)
		if err := os.Symlink("plain", s.Source+"/link.pem"); err != nil {
			t.Fatal(err)
		}
		untouched := s.Untouched()
		passes(t, s, askForHidden, nil, "--preset", "full-access", "--hide", "strict:*.pem")
		untouched()
		// Each attempt reached us, on what exists as often as on what does not.
		want := s.Denied("/gone.pem")
		if want < len(asking)+len(making) {
			t.Errorf("%d refusals at /gone.pem are in the audit log, fewer than attempts", want)
		}
		for _, path := range []string{"/secret.pem", "/vault.pem", "/link.pem"} {
			if got := s.Denied(path); got != want {
				t.Errorf("%d refusals at %s, %d at /gone.pem", got, path, want)
			}
		}
	})
}

// Where own entries are permitted, a program can create one whether or not the source has
// an entry there, and the source's entry never shows.
func TestOwnEntriesTellNothing(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{
			"secret.pem": "secret", "vault.pem/inner": "secret", "plain": "plain", "dir/": "",
		}, who...)
		if err := os.Symlink("plain", s.Source+"/link.pem"); err != nil {
			t.Fatal(err)
		}
		untouched := s.Untouched()
		passes(t, s, makeOwn, nil, "--preset", "full-access", "--hide", "*.pem")
		untouched()
		want := s.Denied("/gone.pem")
		for _, path := range []string{"/secret.pem", "/vault.pem", "/link.pem"} {
			if got := s.Denied(path); got != want {
				t.Errorf("%d refusals at %s, %d at /gone.pem", got, path, want)
			}
		}
		agentfense(t, s, "apply", s.Name)
		untouched()
	})
}

var makeOwn = program("make own entries", func(in *inside, _ []string) {
	hidden := []string{"secret.pem", "vault.pem", "link.pem", "gone.pem"}
	for name, call := range asking {
		for _, path := range hidden {
			in.errno(name+" "+path, call(path), unix.ENOENT)
		}
	}
	for name, call := range making {
		want := unix.Errno(0)
		if name == "link" {
			want = unix.EXDEV
		}
		for _, path := range hidden {
			in.errno(name+" "+path, call(path), want)
			in.works("clean up", os.RemoveAll(path))
			in.works("clean up", os.WriteFile("plain", []byte("plain"), 0o644))
			in.works("clean up", os.MkdirAll("dir", 0o755))
			in.errno("stat of what was removed at "+path, unix.Stat(path, new(unix.Stat_t)), unix.ENOENT)
		}
	}
	for _, path := range hidden {
		in.works("make a directory", os.Mkdir(path, 0o755))
		in.is("what it holds", len(listing(path)), 2)
		in.works("remove it", unix.Rmdir(path))
	}
})

var askForHidden = program("ask for hidden", func(in *inside, _ []string) {
	hidden := []string{"secret.pem", "vault.pem", "link.pem", "gone.pem"}
	for name, call := range asking {
		in.errno(name+" of what is not there", call("absent"), unix.ENOENT)
		for _, path := range hidden {
			in.errno(name+" "+path, call(path), unix.ENOENT)
		}
	}
	for name, call := range making {
		for _, path := range hidden {
			in.errno(name+" "+path, call(path), unix.EACCES)
		}
	}
	for name, call := range asking {
		in.errno(name+" below what is not there", call("absent/inner"), unix.ENOENT)
		for _, path := range hidden {
			in.errno(name+" "+path+"/inner", call(path+"/inner"), unix.ENOENT)
		}
	}
	entries, err := os.ReadDir(".")
	in.works("list", err)
	for _, e := range entries {
		in.is(e.Name()+" is hidden", strings.HasSuffix(e.Name(), ".pem"), false)
	}
})

// asking are calls on a path, whatever is there.
var asking = map[string]func(path string) error{
	"stat":      func(p string) error { return unix.Stat(p, new(unix.Stat_t)) },
	"lstat":     func(p string) error { return unix.Lstat(p, new(unix.Stat_t)) },
	"statx":     func(p string) error { return unix.Statx(unix.AT_FDCWD, p, 0, unix.STATX_ALL, new(unix.Statx_t)) },
	"open":      func(p string) error { return opened(p, unix.O_RDONLY) },
	"open w":    func(p string) error { return opened(p, unix.O_WRONLY|unix.O_TRUNC) },
	"open rw":   func(p string) error { return opened(p, unix.O_RDWR|unix.O_APPEND) },
	"O_PATH":    func(p string) error { return opened(p, unix.O_PATH|unix.O_NOFOLLOW) },
	"list":      func(p string) error { return opened(p, unix.O_DIRECTORY) },
	"slash":     func(p string) error { return unix.Stat(p+"/", new(unix.Stat_t)) },
	"dot":       func(p string) error { return unix.Stat(p+"/.", new(unix.Stat_t)) },
	"dots":      func(p string) error { return unix.Stat(p+"/../plain", new(unix.Stat_t)) },
	"O_TMPFILE": func(p string) error { return opened(p, unix.O_TMPFILE|unix.O_WRONLY) },
	"access":    func(p string) error { return unix.Access(p, unix.F_OK) },
	"access r":  func(p string) error { return unix.Faccessat(unix.AT_FDCWD, p, unix.R_OK, 0) },
	"readlink":  func(p string) error { _, err := unix.Readlink(p, make([]byte, 9)); return err },
	"chdir":     unix.Chdir,
	"statfs":    func(p string) error { return unix.Statfs(p, new(unix.Statfs_t)) },
	"execve":    func(p string) error { return unix.Exec(p, []string{p}, nil) },
	"truncate":  func(p string) error { return unix.Truncate(p, 0) },
	"chmod":     func(p string) error { return unix.Chmod(p, 0o777) },
	"chown":     func(p string) error { return unix.Lchown(p, os.Getuid(), os.Getgid()) },
	"utimes":    func(p string) error { return unix.UtimesNanoAt(unix.AT_FDCWD, p, nil, unix.AT_SYMLINK_NOFOLLOW) },
	"unlink":    unix.Unlink,
	"rmdir":     unix.Rmdir,
	"rename":    func(p string) error { return unix.Rename(p, "moved") },
	"exchange": func(p string) error {
		return unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, "plain", unix.RENAME_EXCHANGE)
	},
	"exchange with": func(p string) error {
		return unix.Renameat2(unix.AT_FDCWD, "plain", unix.AT_FDCWD, p, unix.RENAME_EXCHANGE)
	},
	"link": func(p string) error { return unix.Link(p, "linked") },
	"link follow": func(p string) error {
		return unix.Linkat(unix.AT_FDCWD, p, unix.AT_FDCWD, "linked", unix.AT_SYMLINK_FOLLOW)
	},
	"getxattr":    func(p string) error { _, err := unix.Lgetxattr(p, "user.x", nil); return err },
	"listxattr":   func(p string) error { _, err := unix.Llistxattr(p, nil); return err },
	"setxattr":    func(p string) error { return unix.Lsetxattr(p, "user.x", nil, 0) },
	"removexattr": func(p string) error { return unix.Lremovexattr(p, "user.x") },
	"inotify":     watched,
	"connect":     func(p string) error { return withSocket(p, unix.Connect) },
	"through link": func(p string) error {
		unix.Unlink("dir/through")
		if err := unix.Symlink("../"+p, "dir/through"); err != nil {
			return err
		}
		return unix.Stat("dir/through", new(unix.Stat_t))
	},
}

// making are calls that put something at a path.
var making = map[string]func(path string) error{
	"create":           func(p string) error { return opened(p, unix.O_CREAT|unix.O_WRONLY) },
	"create exclusive": func(p string) error { return opened(p, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR) },
	"mkdir":            func(p string) error { return unix.Mkdir(p, 0o755) },
	"mknod":            func(p string) error { return unix.Mknod(p, unix.S_IFREG|0o644, 0) },
	"mkfifo":           func(p string) error { return unix.Mkfifo(p, 0o644) },
	"symlink":          func(p string) error { return unix.Symlink("plain", p) },
	"link":             func(p string) error { return unix.Link("plain", p) },
	"rename":           func(p string) error { return unix.Rename("plain", p) },
	"rename dir":       func(p string) error { return unix.Rename("dir", p) },
	"no replace": func(p string) error {
		return unix.Renameat2(unix.AT_FDCWD, "plain", unix.AT_FDCWD, p, unix.RENAME_NOREPLACE)
	},
	"bind": func(p string) error { return withSocket(p, unix.Bind) },
}

// opened opens a path and closes it again.
func opened(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o644)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// procFD is the name by which a descriptor can be opened again.
func procFD(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

func watched(path string) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.InotifyAddWatch(fd, path, unix.IN_ALL_EVENTS)
	return err
}

// withSocket makes a socket and uses it with the path as its address.
func withSocket(path string, use func(fd int, addr unix.Sockaddr) error) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return use(fd, &unix.SockaddrUnix{Name: path})
}
