package attack_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// A mount shows the files and directories of its source, and nothing else that a source can
// hold: no socket and no FIFO of a service of the host, no device, and no way out by a link
// or by the kernel's names for open files.
func TestMountsShowFilesOnly(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"r": ""}, who...)
		dir, outside := mountedDir(t), mountedDir(t)
		l := listenIn(t, filepath.Join(dir, "tool/agent.sock"))
		go serveReached(l)
		fifo(t, dir+"/pipe")
		reader, err := os.OpenFile(dir+"/pipe", os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		if os.Geteuid() == 0 {
			if err := unix.Mknod(dir+"/zero", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))); err != nil {
				t.Fatal(err)
			}
		}
		for link, target := range map[string]string{"absolute": outside + "/file", "up": "../../../../../.." + outside + "/file", "proc": "/proc/self/root" + outside + "/file"} {
			if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
				t.Fatal(err)
			}
		}
		for _, path := range []string{dir + "/file", outside + "/file"} {
			if err := os.WriteFile(path, []byte("content\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		passes(t, s, lookInMount, []string{outside}, "--preset", "full-access", "--mount", dir+":/opt/tools", "--mount", dir+"/tool:/opt/tool")
		if _, err := os.Stat(outside + "/made"); err == nil {
			t.Error("a file was made outside")
		}
	})
}

// serveReached greets whoever reaches a service of the host.
func serveReached(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "reached\n")
		c.Close()
	}
}

var lookInMount = program("look around in a mount", func(in *inside, args []string) {
	for _, path := range []string{"/opt/tools/tool/agent.sock", "/opt/tool/agent.sock"} {
		_, err := net.DialTimeout("unix", path, 30*time.Second)
		in.errno("connect to "+path, err, unix.ENOENT)
	}
	in.errno("open the FIFO", opened("/opt/tools/pipe", unix.O_WRONLY|unix.O_NONBLOCK), unix.ENOENT)
	in.errno("open the device", opened("/opt/tools/zero", unix.O_RDONLY), unix.ENOENT)
	for _, link := range []string{"absolute", "up", "proc"} {
		in.errno("follow the link "+link, opened("/opt/tools/"+link, unix.O_RDONLY), unix.ENOENT)
	}
	entries, err := os.ReadDir("/opt/tools")
	in.works("list", err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	in.is("names", strings.Join(names, " "), "absolute file proc tool up")
	for _, path := range []string{"/opt/tools/..", "/opt/tools/../tool", "/opt/tools/tool/../.."} {
		_, err := os.Stat(path + args[0])
		in.errno("climb by "+path, err, unix.ENOENT)
	}
	in.errno("make in a mount", opened("/opt/tools/made", unix.O_CREAT|unix.O_WRONLY), unix.EACCES)
	for _, path := range []string{"/opt/tools/workspace", "/opt/tools/../workspace/../tools/tools"} {
		_, err := os.Stat(path)
		in.errno("the root of the views by "+path, err, unix.ENOENT)
	}
})

// Nothing moves between the workspace and a mount, and nothing in a mount changes.
func TestMountsAreReadOnlyAndApart(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"f": "mine", "d/x": ""}, who...)
		dir := mountedDir(t)
		if err := os.WriteFile(dir+"/file", []byte("theirs"), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir+"/file", 0o666); err != nil {
			t.Fatal(err)
		}
		passes(t, s, crossMounts, nil, "--preset", "full-access", "--mount", dir+":/opt/tools")
		content, err := os.ReadFile(dir + "/file")
		entries, listErr := os.ReadDir(dir)
		if err != nil || listErr != nil || string(content) != "theirs" || len(entries) != 2 {
			t.Errorf("the source holds %q and %d entries, %v, %v", content, len(entries), err, listErr)
		}
	})
}

var crossMounts = program("move between mounts", func(in *inside, _ []string) {
	const file = "/opt/tools/file"
	in.errno("rename out", unix.Rename(file, "stolen"), unix.EXDEV)
	in.errno("rename in", unix.Rename("f", "/opt/tools/f"), unix.EXDEV)
	in.errno("rename a directory in", unix.Rename("d", "/opt/tools/d"), unix.EXDEV)
	in.errno("exchange", unix.Renameat2(unix.AT_FDCWD, "f", unix.AT_FDCWD, file, unix.RENAME_EXCHANGE), unix.EXDEV)
	in.errno("link out", unix.Link(file, "linked"), unix.EXDEV)
	in.errno("link in", unix.Link("f", "/opt/tools/f"), unix.EXDEV)
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	in.works("open", err)
	in.refused("open for writing by the descriptor", opened("/proc/self/fd/"+itoa(fd), unix.O_RDWR), unix.EACCES)
	in.refused("link the descriptor", unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+itoa(fd), unix.AT_FDCWD, "linked", unix.AT_SYMLINK_FOLLOW), unix.EXDEV)
	in.refused("truncate", unix.Truncate(file, 0), unix.EACCES)
	in.refused("chmod", unix.Chmod(file, 0o777), unix.EACCES)
	in.refused("change times", unix.UtimesNanoAt(unix.AT_FDCWD, file, make([]unix.Timespec, 2), 0), unix.EACCES)
	in.refused("remove", unix.Unlink(file), unix.EACCES)
	in.refused("remove a directory", unix.Rmdir("/opt/tools/tool"), unix.EACCES)
	in.refused("make a directory", unix.Mkdir("/opt/tools/new", 0o755), unix.EACCES)
	in.refused("make a link", unix.Symlink("x", "/opt/tools/new"), unix.EACCES)
	_, err = unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	in.errno("map for writing", err, unix.EACCES)
	in.refused("open a file without a name", opened("/opt/tools", unix.O_TMPFILE|unix.O_RDWR), unix.EACCES)
})

// What a preset hides in a mount gives no sign, and does not come out by another name.
func TestMountsHideWhatTheirRulesHide(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"f": "mine"}, who...)
		dir := mountedDir(t)
		for _, name := range []string{"file", ".env", "tool/id_rsa"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("theirs"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(".env", dir+"/link"); err != nil {
			t.Fatal(err)
		}
		passes(t, s, lookForHidden, nil, "--preset", "full-access", "--mount", dir+":/opt/tools:read-only")
	})
}

var lookForHidden = program("look for what a mount hides", func(in *inside, _ []string) {
	for _, name := range []string{".env", "tool/id_rsa", "link", "tool/../.env"} {
		in.errno("open "+name, opened("/opt/tools/"+name, unix.O_RDONLY), unix.ENOENT)
	}
	var st unix.Stat_t
	in.errno("stat what is hidden", unix.Lstat("/opt/tools/.env", &st), unix.ENOENT)
	in.errno("stat what is absent", unix.Lstat("/opt/tools/.env.local", &st), unix.ENOENT)
	in.errno("rename what is hidden", unix.Rename("/opt/tools/.env", "/opt/tools/seen"), unix.ENOENT)
	in.errno("rename it out", unix.Rename("/opt/tools/.env", "seen"), unix.EXDEV)
	in.errno("link it", unix.Link("/opt/tools/.env", "/opt/tools/seen"), unix.ENOENT)
	in.errno("make it", opened("/opt/tools/.env", unix.O_CREAT|unix.O_WRONLY), unix.EACCES)
	in.errno("make it anew", opened("/opt/tools/.env", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY), unix.EACCES)
	in.errno("make a directory of it", unix.Mkdir("/opt/tools/.env", 0o755), unix.EACCES)
	in.errno("make what is absent", opened("/opt/tools/.env.local", unix.O_CREAT|unix.O_WRONLY), unix.EACCES)
	for dir, want := range map[string]int{"/opt/tools": 3, "/opt/tools/tool": 1} {
		entries, err := os.ReadDir(dir)
		in.works("list", err)
		in.is("the number of names in "+dir, len(entries), want)
	}
})

// A source that is replaced by a link between two starts leads nowhere: neither to the state
// directory nor to a directory of the kernel nor to the sandbox's own source.
func TestMountSourcesAreCheckedAtEachStart(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"secrets/f": "hidden"}, who...)
		parent := mountedDir(t)
		dir := parent + "/tool"
		prints(t, s, "ls /opt/tools", "run\n", "--mount", dir+":/opt/tools")
		if err := os.Rename(dir, parent+"/moved"); err != nil {
			t.Fatal(err)
		}
		for target, want := range map[string]string{
			s.Home: "only through its view, or not at all", s.Source + "/secrets": "only through its view, or not at all",
			"/proc": "kernel interfaces", "/run": "kernel interfaces", "/": "the whole host", parent + "/none": "no such file",
		} {
			if err := os.Symlink(target, dir); err != nil {
				t.Fatal(err)
			}
			if r := s.Run("ls -R /opt/tools"); r.Code != 125 || r.Stdout != "" || !strings.Contains(r.Stderr, want) {
				t.Errorf("a link to %s: exit code %d, stdout %q, want %q in stderr\n%s", target, r.Code, r.Stdout, want, r.Stderr)
			}
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(parent+"/moved", dir); err != nil {
			t.Fatal(err)
		}
		prints(t, s, "ls /opt/tools", "run\n")
	})
}

// In a container a mount holds against the same.
func TestMountsOfContainersShowFilesOnly(t *testing.T) {
	testenv.Docker(t)
	t.Setenv("DOCKER_HOST", testenv.DockerDaemon(t))
	s := harness.New(t, binary, map[string]string{"f": "mine", "d/x": ""})
	dir := mountedDir(t)
	go serveReached(listenIn(t, filepath.Join(dir, "tool/agent.sock")))
	fifo(t, dir+"/pipe")
	if err := os.WriteFile(dir+"/file", []byte("theirs"), 0o666); err != nil {
		t.Fatal(err)
	}
	r := s.Run("cd /workspace; ls /opt/tools /opt/tools/tool; ln /opt/tools/file linked; mv f /opt/tools/; rm /opt/tools/file; cat /opt/tools/file",
		"--runtime", "docker", "--image", testenv.DockerImage, "--preset", "full-access", "--mount", dir+":/opt/tools")
	if r.Code != 0 || r.Stdout != "/opt/tools:\nfile\ntool\n\n/opt/tools/tool:\nrun\ntheirs" {
		t.Errorf("%+v", r)
	}
	if content, err := os.ReadFile(dir + "/file"); err != nil || string(content) != "theirs" {
		t.Errorf("the source holds %q, %v", content, err)
	}
}
