package attack_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/test/harness"
)

// An inner sandbox, which programs ask for by bubblewrap's command line, has what it asked for and
// nothing more, whatever names lie in the workspace, and whoever asks. Nothing of it stays.
func TestInnerSandboxes(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{
			"f": "", ".git/config": "theirs", "secret/key": "hidden", ".env": "hidden", "sub/.git/config": "theirs", "d/x": "",
		}, who...)
		for link, target := range map[string]string{"out": "/usr", "up": "..", "in": "d"} {
			if err := os.Symlink(target, filepath.Join(s.Source, link)); err != nil {
				t.Fatal(err)
			}
		}
		passes(t, s, attackInner, nil, "--preset", "full-access")
		if r := s.Agentfense("diff", s.Name, "--name-status"); r.Code != 0 || r.Stdout != "M\tf\nA\tmade\n" {
			t.Errorf("diff: %+v", r)
		}
	})
}

// insideOf is the command line of an inner sandbox in which the workspace can be written to, but
// for some places.
func insideOf(args ...string) []string {
	ws, _ := os.Getwd()
	return append([]string{
		"--ro-bind", "/", "/", "--bind", ws, ws, "--ro-bind", ws + "/.git", ws + "/.git", "--ro-bind", ws + "/sub/.git", ws + "/sub/.git",
		"--tmpfs", ws + "/secret", "--ro-bind", "/dev/null", ws + "/.env", "--ro-bind", "/dev/null", ws + "/absent",
		"--dev", "/dev", "--proc", "/proc", "--unshare-pid", "--unshare-net", "--die-with-parent", "--",
	}, args...)
}

// bwrap runs it and returns what it printed and its exit status.
func bwrap(args ...string) (said string, status int) {
	cmd := exec.Command("bwrap", args...)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return err.Error(), -1
	}
	return string(out), cmd.ProcessState.ExitCode()
}

var attackInner = program("attack by inner sandboxes", func(in *inside, _ []string) {
	abstract, err := net.Listen("unix", "@outer")
	in.works("listen", err)
	defer abstract.Close()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	in.works("open a terminal", err)
	defer terminal.Close()
	in.works("leave a file", os.WriteFile("/var/tmp/shared", nil, 0o600))
	os.Setenv(harness.ProgramVariable, lookFromInner)
	said, status := bwrap(insideOf("/opt/program")...)
	in.is("what is met in an inner sandbox: "+said, status, 0)
	os.Unsetenv(harness.ProgramVariable)
	for _, name := range []string{"absent", "secret/new"} {
		in.errno(name+" afterwards", unix.Lstat(name, &unix.Stat_t{}), unix.ENOENT)
	}
	ws, _ := os.Getwd()
	for _, args := range [][]string{
		{"--tmpfs", ws + "/out/share"},
		{"--bind", ws + "/up", ws + "/up"},
		{"--ro-bind", "/dev/null", ws + "/in/x"},
		{"--tmpfs", ws + "/in"},
		{"--bind", "/usr", ws},
		{"--bind", ws + "/secret", ws + "/d"},
		{"--dev-bind", "/", "/mnt"},
		{"--tmpfs", "/proc/self"},
		{"--cap-add", "ALL"},
		{"--overlay-src", "/"},
		{"--ro-bind", "/dev/null", "/dev/null/x"},
	} {
		said, status := bwrap(append(append([]string{"--bind", "/", "/"}, args...), "true")...)
		in.is(strings.Join(args, " ")+" is refused, "+said, status == 1 && strings.HasPrefix(said, "bwrap: agentfense: "), true)
	}
	many := strings.Fields(strings.Repeat("--tmpfs /tmp ", 5000) + "true")
	said, status = bwrap(many...)
	in.is("10,000 arguments: "+said, status, 1)
	closeTheWorkspace(in)
	raceNames(in)
	runTogether(in)
	local, err := net.Listen("tcp", "127.0.0.1:0")
	in.works("listen", err)
	defer local.Close()
	os.Setenv(harness.ProgramVariable, connectFromInner)
	said, status = bwrap("--ro-bind", "/", "/", "/opt/program", local.Addr().String())
	in.is("the network of the sandbox: "+said, status, 0)
	os.Unsetenv(harness.ProgramVariable)
	watchEnds(in)
	talkToSupervisor(in)
	said, status = bwrap(insideOf("sh", "-c", "echo x > made")...)
	in.is("an inner sandbox afterwards: "+said, status, 0)
})

// lookFromInner runs in the inner sandbox.
var lookFromInner = program("look from an inner sandbox", func(in *inside, _ []string) {
	in.works("write", os.WriteFile("f", []byte("changed"), 0o600))
	for _, at := range []string{".", isolate.Workspace, "/proc/self/cwd", "d/.."} {
		for _, name := range []string{"/.git/config", "/.git/new", "/sub/.git/config", "/.env", "/absent"} {
			_, err := unix.Open(at+name, unix.O_WRONLY|unix.O_CREAT, 0o600)
			in.refused("write "+at+name, err, unix.EROFS, unix.EACCES)
			in.refused("remove "+at+name, unix.Unlink(at+name), unix.EROFS, unix.EBUSY, unix.ENOENT)
		}
		in.errno("read what is hidden", opened(at+"/secret/key", unix.O_RDONLY), unix.ENOENT)
		content, err := os.ReadFile(at + "/.env")
		in.works("read what is covered", err)
		in.is("what is covered", string(content), "")
	}
	for _, name := range []string{".git", "sub/.git", "secret", ".env", "absent", "sub"} {
		in.refused("rename "+name, unix.Rename(name, "moved"), unix.EBUSY, unix.EXDEV)
		in.refused("replace "+name, unix.Renameat2(unix.AT_FDCWD, name, unix.AT_FDCWD, "d", unix.RENAME_EXCHANGE), unix.EBUSY, unix.EXDEV)
		in.refused("unmount "+name, unix.Unmount(name, unix.MNT_DETACH), unix.EPERM, unix.ENOSYS)
	}
	in.refused("write to what is read-only", os.WriteFile("/var/tmp/shared", []byte("x"), 0o600), unix.EROFS)
	in.works("see what is shared", unix.Lstat("/var/tmp/shared", &unix.Stat_t{}))
	in.works("write to what is its own", os.WriteFile("secret/new", nil, 0o600))
	in.refused("a user namespace", unix.Unshare(unix.CLONE_NEWUSER), unix.EPERM, unix.ENOSPC, unix.ENOSYS, unix.EINVAL)

	processes, err := filepath.Glob("/proc/[0-9]*")
	in.works("list processes", err)
	in.is("there are few processes", len(processes) <= 3, true)
	in.refused("the root of PID 1", unix.Access("/proc/1/root/", unix.R_OK), unix.EACCES)
	_, err = net.Dial("unix", "@outer")
	in.refused("an abstract socket outside", err, unix.ECONNREFUSED)
	links, err := os.ReadDir("/sys/class/net")
	in.is("there is no network", errors.Is(err, os.ErrNotExist) || len(links) <= 1, true)
	terminals, err := filepath.Glob("/dev/pts/[0-9]*")
	in.works("list terminals", err)
	in.is("the terminals outside", len(terminals), 0)
	open, err := os.ReadDir("/proc/self/fd")
	in.works("list descriptors", err)
	for _, d := range open {
		target, err := os.Readlink("/proc/self/fd/" + d.Name())
		if err != nil {
			continue // that of the listing
		}
		in.is("descriptor "+d.Name()+" is "+target, strings.HasPrefix(target, "pipe:") || strings.HasPrefix(target, "/proc/") || strings.HasPrefix(target, "anon_inode:"), true)
	}
	_, err = net.Dial("unix", isolate.ShimSocket)
	in.refused("ask for another", err, unix.EACCES, unix.ECONNREFUSED)
	said, status := bwrap("--bind", "/", "/", "true")
	in.is("one in another: "+said, status == 1 && strings.Contains(said, "cannot contain another"), true)
})

// connectFromInner runs in an inner sandbox that has the network of the sandbox.
var connectFromInner = program("connect from an inner sandbox", func(in *inside, args []string) {
	for network, address := range map[string]string{"unix": "@outer", "tcp": args[0]} {
		c, err := net.Dial(network, address)
		in.works("connect to "+address, err)
		in.is("a connection to "+address, c != nil, true)
	}
})

// closeTheWorkspace makes it impossible for its user to make what covers an absent path. It is
// covered nevertheless, or nothing runs: once the directory is open again it could be made.
func closeTheWorkspace(in *inside) {
	in.works("close", os.Chmod(".", 0o555))
	said, _ := bwrap(insideOf("sh", "-c", "chmod 755 . && echo x > absent && echo wider")...)
	in.is("a path that could not be covered: "+said, strings.Contains(said, "wider"), false)
	in.is("why: "+said, strings.Contains(said, "permission denied") || strings.Contains(said, "Read-only file system"), true)
	in.works("open again", os.Chmod(".", 0o755))
}

// raceNames puts other directories and links in the place of one that contains what is protected,
// while inner sandboxes start.
func raceNames(in *inside) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			_ = unix.Rename("sub", "elsewhere") // busy while an inner sandbox runs
			_ = unix.Symlink("d", "sub")
			_ = unix.Unlink("sub")
			_ = unix.Rename("elsewhere", "sub")
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	ran := 0
	for i := 0; i < 12 || ran == 0 && i < 500; i++ {
		const write = "for d in sub elsewhere d; do (echo x > $d/.git/config) 2>&- && echo wider; done; echo ran"
		said, _ := bwrap(insideOf("sh", "-c", write)...)
		in.is("what is met while names change: "+said, strings.Contains(said, "wider"), false)
		if strings.Contains(said, "ran") {
			ran++
		}
	}
	close(stop)
	<-stopped
	content, err := os.ReadFile("sub/.git/config")
	in.works("read what was protected", err)
	in.is("what was protected", string(content), "theirs")
	in.is("some ran", ran > 0, true)
}

// runTogether starts some that cover the same absent path: the first that ends uncovers it for
// none.
func runTogether(in *inside) {
	var all sync.WaitGroup
	var said [6]string
	for i := range said {
		all.Go(func() {
			text, status := bwrap(insideOf("sh", "-c", fmt.Sprintf("for i in $(seq %d); do (echo x > absent) 2>&- && echo made; (echo x > .git/new) 2>&- && echo changed; done; true", 50*i))...)
			said[i] = fmt.Sprint(text, status)
		})
	}
	all.Wait()
	// One covers what another covers, after it was removed where nothing keeps it.
	removed := 0
	for i := 0; i < 2 || removed == 0 && i < 20; i++ {
		said, status := bwrap("--bind", "/", "/", "--ro-bind", "/dev/null", "/var/tmp/x", "sh", "-c", "true")
		in.is("cover a temporary file: "+said, status, 0)
		ended := make(chan struct{})
		all.Go(func() {
			defer close(ended)
			_, _ = bwrap("--bind", "/", "/", "--ro-bind", "/dev/null", "/var/tmp/x", "sleep", "0.2")
		})
		if removeUntil("/var/tmp/x", ended) {
			removed++
		}
	}
	in.is("what covers it was removed meanwhile", removed > 0, true)
	all.Wait()
	in.errno("what covered it afterwards", unix.Lstat("/var/tmp/x", &unix.Stat_t{}), unix.ENOENT)
	for _, text := range said {
		in.is("what one of several met", text, "0")
	}
	in.errno("absent afterwards", unix.Lstat("absent", &unix.Stat_t{}), unix.ENOENT)
}

// removeUntil removes a file as soon as it is there, unless ended is closed before.
func removeUntil(path string, ended <-chan struct{}) bool {
	for unix.Unlink(path) != nil {
		select {
		case <-ended:
			return false
		case <-time.After(time.Millisecond):
		}
	}
	return true
}

// watchEnds tries how inner sandboxes end.
func watchEnds(in *inside) {
	for command, want := range map[string]int{"exit 3": 3, "kill -9 $$": 137, "nosuch": 127, "trap 'exit 5' TERM; kill -TERM $$": 5} {
		said, status := bwrap(insideOf("sh", "-c", command)...)
		in.is(command+": "+said, status, want)
	}
	said, status := bwrap("--bind", "/", "/", "nosuch")
	in.is("a command that is absent: "+said, status, 127)
	cmd := exec.Command("bwrap", insideOf("sh", "-c", "trap 'echo caught; exit 6' TERM; echo ready; while :; do sleep 0.05; done")...)
	out, err := cmd.StdoutPipe()
	in.works("start", errors.Join(err, cmd.Start()))
	line := make([]byte, 6)
	_, err = io.ReadFull(out, line)
	in.works("read", err)

	// Nobody moves what it protects meanwhile: the kernel would end the mount there.
	for _, name := range []string{".git", "sub", ".env", "absent"} {
		in.errno("move "+name+" from outside", unix.Rename(name, "moved"), unix.EBUSY)
		in.errno("replace "+name+" from outside", unix.Renameat2(unix.AT_FDCWD, name, unix.AT_FDCWD, "d", unix.RENAME_EXCHANGE), unix.EBUSY)
	}
	in.errno("remove from outside", unix.Unlink(".env"), unix.EBUSY)
	in.works("signal", cmd.Process.Signal(unix.SIGTERM))
	rest, _ := io.ReadAll(out)
	_ = cmd.Wait()
	in.is("what it printed", string(rest), "caught\n")
	in.is("how it ended", cmd.ProcessState.ExitCode(), 6)

	// What killed it is not told to the program inside, which is killed, too.
	cmd = exec.Command("bwrap", insideOf("sh", "-c", "echo ready; sleep 1000")...)
	out, err = cmd.StdoutPipe()
	in.works("start", errors.Join(err, cmd.Start()))
	_, err = io.ReadFull(out, line)
	in.works("read", err)
	in.works("kill", cmd.Process.Kill())
	_ = cmd.Wait()
	gone := func() bool { return unix.Lstat("absent", &unix.Stat_t{}) == unix.ENOENT }
	for end := time.Now().Add(20 * time.Second); !gone() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	in.is("what was made to mount on is gone", gone(), true)
	in.works("move", unix.Rename(".env", "moved"))
	in.works("move back", unix.Rename("moved", ".env"))
}

// talkToSupervisor speaks to the supervisor without the shim.
func talkToSupervisor(in *inside) {
	dial := func() net.Conn {
		c, err := net.Dial("unix", isolate.ShimSocket)
		in.works("connect", err)
		return c
	}
	answer := func(c net.Conn) string {
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		all, err := io.ReadAll(c)
		if err != nil && !errors.Is(err, unix.ECONNRESET) {
			in.fail("no answer: %v", err)
		}
		return string(bytes.ToValidUTF8(all, nil))
	}
	request := func(text string) []byte { return append([]byte{byte(len(text)), byte(len(text) >> 8), 0, 0}, text...) }
	for _, message := range []string{
		"\xff\xff\xff\xff", string(request("{")), string(request(`{"steps":[{"kind":9}]}`)), string(request(`{"steps":[{"kind":2,"path":"Li4vLi4="}]}`)),
		string(request(`{"command":["c2g="],"dirs":["Ly4uLy4u"]}`)), string(request(`{"command":["c2g="],"dirs":["Lw=="],"hostname":"YTpi"}`)),
	} {
		c := dial()
		_, err := c.Write([]byte(message))
		in.works("write", err)
		in.is(message+" is refused", strings.Contains(answer(c), `"error"`), true)
		c.Close()
	}
	// An inner sandbox that was killed before may still take one of the places.
	flood := func() (refused string, halves int) {
		var held []net.Conn
		for range 16 {
			held = append(held, dial())
		}
		c := dial()
		refused = answer(c)
		c.Close()
		for _, c := range held {
			_ = c.(*net.UnixConn).CloseWrite()
			if strings.Contains(answer(c), "no request") {
				halves++
			}
			c.Close()
		}
		return refused, halves
	}
	refused, halves := flood()
	for end := time.Now().Add(20 * time.Second); halves < 16 && time.Now().Before(end); {
		refused, halves = flood()
	}
	in.is("another, of too many", strings.Contains(refused, "16 commands run in inner sandboxes"), true)
	in.is("how many halves of requests are refused", halves, 16)
}
