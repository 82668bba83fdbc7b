package attack_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// mountedDir is a directory of the host that everybody can enter.
func mountedDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "attack")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, path := range []string{dir, dir + "/tool", dir + "/tool/run"} {
		if path != dir {
			if err := os.Mkdir(path, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// listenIn opens a service of the host at path for everybody.
func listenIn(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	return l
}

func fifo(t *testing.T, path string) {
	t.Helper()
	if err := unix.Mkfifo(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
}

// A host service cannot be reached through a bind mount with its socket: the mount is refused
// by name.
func TestMountsWithServicesAreRefused(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		for _, where := range []string{"agent.sock", "tool/agent.sock", "tool/run/agent.sock"} {
			dir := mountedDir(t)
			listenIn(t, filepath.Join(dir, where))
			refusedToStart(t, s, []string{"--mount", dir + ":bind"}, dir, `socket "`+where+`"`)
			refusedToStart(t, s, []string{"--mount", dir + ":/opt/tools:bind"}, dir, `socket "`+where+`"`)
		}
		dir := mountedDir(t)
		fifo(t, filepath.Join(dir, "tool/pipe"))
		refusedToStart(t, s, []string{"--mount", dir + ":bind"}, dir, `FIFO "tool/pipe"`)
	})
}

// A socket that was added to a bind mount later is found at the next start of the sandbox.
func TestMountsAreCheckedAtEachStart(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		dir := mountedDir(t)
		prints(t, s, "echo ran; touch kept", "ran\n", "--preset", "full-access", "--mount", dir+":/opt/tools:bind")
		listenIn(t, filepath.Join(dir, "agent.sock"))
		r := s.Run("echo ran")
		if r.Code != 125 || r.Stdout != "" || !strings.Contains(r.Stderr, `socket "agent.sock"`) {
			t.Errorf("exit code %d, %q\n%s", r.Code, r.Stdout, r.Stderr)
		}
		if err := os.Remove(filepath.Join(dir, "agent.sock")); err != nil {
			t.Fatal(err)
		}
		prints(t, s, "ls", "kept\n")
	})
}

// The same in a container.
func TestMountsOfContainersAreChecked(t *testing.T) {
	testenv.Docker(t)
	t.Setenv("DOCKER_HOST", testenv.DockerDaemon(t))
	dir := mountedDir(t)
	listenIn(t, filepath.Join(dir, "tool/agent.sock"))
	refusedToStart(t, harness.New(t, binary, nil), []string{"--runtime", "docker", "--image", testenv.DockerImage, "--mount", dir + ":/opt/tools:bind"}, dir, `socket "tool/agent.sock"`)
}

// Sockets are the only special files that need the refusal: devices in a bind mount cannot be
// opened, and links lead only to paths inside.
func TestDevicesAndLinksOfMountsAreOfNoUse(t *testing.T) {
	testenv.Root(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		dir, service := mountedDir(t), mountedDir(t)
		l := listenIn(t, filepath.Join(service, "agent.sock"))
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, "reached\n")
				c.Close()
			}
		}()
		if err := unix.Mknod(dir+"/zero", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(service+"/agent.sock", dir+"/agent.sock"); err != nil {
			t.Fatal(err)
		}
		passes(t, s, useMount, []string{dir}, "--mount", dir+":bind")
	})
}

var useMount = program("use what is in a mount", func(in *inside, args []string) {
	in.refused("open a device", opened(args[0]+"/zero", unix.O_RDONLY), unix.EACCES, unix.EPERM)
	_, err := net.Dial("unix", args[0]+"/agent.sock")
	in.errno("connect through a link", err, unix.ENOENT)
})

// Every sandbox sees /usr/local, where services that a user installed may have their
// sockets. The sockets are hidden.
func TestServicesInTheSystemAreCovered(t *testing.T) {
	testenv.Root(t)
	dir, err := os.MkdirTemp("/usr/local", "attack")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	listenIn(t, dir+"/agent.sock")
	fifo(t, dir+"/pipe")
	reader, err := os.OpenFile(dir+"/pipe", os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		passes(t, harness.New(t, binary, nil, who...), useSystem, []string{dir})
	})
}

var useSystem = program("use services of the system's", func(in *inside, args []string) {
	_, err := net.Dial("unix", args[0]+"/agent.sock")
	in.refused("connect", err, unix.ECONNREFUSED, unix.EACCES)
	in.refused("open the FIFO", opened(args[0]+"/pipe", unix.O_WRONLY|unix.O_NONBLOCK), unix.EROFS, unix.EACCES)
})
