package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// Devices cannot be created or opened. agentfense never opens FIFOs and sockets, so it
// never blocks on one; a test that hangs here has failed.
func TestSpecialFiles(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"dir/x": "x"}, who...)
		at := func(name string) string { return filepath.Join(s.Source, name) }
		for _, name := range []string{"fifo", "dir/fifo"} {
			if err := unix.Mkfifo(at(name), 0o666); err != nil {
				t.Fatal(err)
			}
			s.Own(at(name))
		}
		if err := withSocket(at("socket"), unix.Bind); err != nil {
			t.Fatal(err)
		}
		s.Own(at("socket"))
		if os.Geteuid() == 0 {
			if err := unix.Mknod(at("device"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
				t.Fatal(err)
			}
			s.Own(at("device"))
		}
		untouched := s.Untouched()
		passes(t, s, useSpecialFiles, nil, "--preset", "full-access")
		untouched()
		for _, name := range []string{"fifo", "socket", "new fifo", "renamed", "dir/fifo", "device", "linked"} {
			if r := s.Agentfense("files", "cat", s.Name, name); r.Code == 0 || r.Stdout != "" {
				t.Errorf("files cat %s: exit code %d, %q", name, r.Code, r.Stdout)
			}
			s.Agentfense("files", "stat", s.Name, name)
		}
		out := agentfense(t, s, "diff", s.Name) + agentfense(t, s, "diff", s.Name, "--json")
		if !strings.Contains(out, "new fifo") {
			t.Errorf("diff does not tell of the FIFO:\n%s", out)
		}
		s.Agentfense("apply", s.Name) // whatever it takes over, it ends
		s.Agentfense("discard", s.Name)
		err := filepath.WalkDir(s.Source, func(path string, entry os.DirEntry, err error) error {
			if err == nil && entry.Type()&os.ModeDevice != 0 && entry.Name() != "device" {
				t.Errorf("a device appeared: %s", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

var useSpecialFiles = program("use special files", func(in *inside, _ []string) {
	for name, mode := range map[string]uint32{"character": unix.S_IFCHR, "block": unix.S_IFBLK} {
		for _, number := range []uint64{0, unix.Mkdev(1, 1), unix.Mkdev(1, 3), unix.Mkdev(10, 229), unix.Mkdev(8, 0)} {
			in.errno(name+" device", unix.Mknod("new device", mode|0o666, int(number)), unix.EPERM)
		}
	}
	in.errno("no device", unix.Lstat("new device", new(unix.Stat_t)), unix.ENOENT)
	if unix.Access("device", unix.F_OK) == nil {
		in.errno("open the source's device", opened("device", unix.O_RDONLY), unix.EACCES)
		in.errno("write the source's device", opened("device", unix.O_WRONLY), unix.EACCES)
		in.errno("link the source's device", unix.Link("device", "linked"), unix.EPERM)
	}
	in.errno("mkfifo", unix.Mkfifo("new fifo", 0o666), 0)
	in.errno("mknod of a socket", unix.Mknod("new socket", unix.S_IFSOCK|0o666, 0), 0)
	// FIFOs work among the sandbox's own processes.
	for _, name := range []string{"new fifo", "fifo", "dir/fifo"} {
		fd, err := unix.Open(name, unix.O_RDWR|unix.O_NONBLOCK, 0)
		in.errno("open "+name, err, 0)
		_, err = unix.Write(fd, []byte("message"))
		in.errno("write "+name, err, 0)
		buf := make([]byte, 100)
		n, err := unix.Read(fd, buf)
		in.errno("read "+name, err, 0)
		in.is("message", string(buf[:max(n, 0)]), "message")
		in.errno("truncate "+name, unix.Truncate(name, 0), unix.EINVAL)
		in.works("chmod", unix.Chmod(name, 0o600)) // copies it up
		in.works("utimes", unix.UtimesNanoAt(unix.AT_FDCWD, name, nil, 0))
		unix.Close(fd)
	}
	in.errno("a write nobody reads", opened("fifo", unix.O_WRONLY), unix.ENXIO)
	in.errno("connect to the host's socket", withSocket("socket", unix.Connect), unix.ECONNREFUSED)
	in.errno("open the socket", opened("socket", unix.O_RDONLY), unix.ENXIO)
	in.works("rename", unix.Rename("fifo", "renamed"))
	in.works("rename the directory", unix.Rename("dir", "moved"))
	in.works("and back", unix.Rename("moved", "dir"))
	in.works("unlink", unix.Unlink("new socket"))
})
