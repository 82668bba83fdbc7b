// Package terminal_test sits at a terminal and uses a sandbox as a person
// does: a shell with job control, Ctrl-C, a window that changes, an editor.
package terminal_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

var binary string

func TestMain(m *testing.M) {
	harness.Main(m, &binary, harness.BuildWithServer)
}

// patience bounds waiting for something to appear on the screen.
const patience = 30 * time.Second

// screen is a terminal with a command on it, and all that it has shown.
type screen struct {
	t    *testing.T
	tty  *os.File
	cmd  *exec.Cmd
	done chan struct{}

	mu    sync.Mutex
	shown bytes.Buffer
	seen  int // what expect has passed
}

func start(t *testing.T, s *harness.Sandbox, args ...string) *screen {
	t.Helper()
	cmd := s.Command(context.Background(), args...)
	cmd.Env = append(cmd.Env, "TERM=xterm", "PS1=ready> ", "HOME="+t.TempDir())
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 30, Cols: 100})
	if err != nil {
		t.Fatal(err)
	}
	return watch(t, cmd, tty)
}

// startShell starts a shell of the host, which has the program's path as $AGENTFENSE.
func startShell(t *testing.T, s *harness.Sandbox) *screen {
	t.Helper()
	cmd := s.Command(context.Background())
	cmd.Env = append(cmd.Env, "TERM=dumb", "PS1=ready> ", "AGENTFENSE="+cmd.Path)
	cmd.Path, cmd.Args = "/bin/bash", []string{"bash", "--norc", "--noprofile", "--noediting", "-i"}
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 30, Cols: 100})
	if err != nil {
		t.Fatal(err)
	}
	return watch(t, cmd, tty)
}

// startUncontrolled gives the command a terminal that is not the controlling
// one of its session, as programs do that call openpty(3) alone.
func startUncontrolled(t *testing.T, s *harness.Sandbox, args ...string) *screen {
	t.Helper()
	tty, theirs, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 30, Cols: 100}); err != nil {
		t.Fatal(err)
	}
	cmd := s.Command(context.Background(), args...)
	cmd.Env = append(cmd.Env, "TERM=xterm", "PS1=ready> ", "HOME="+t.TempDir())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return watch(t, cmd, tty)
}

// watch reads what cmd, which was started on tty, shows there.
func watch(t *testing.T, cmd *exec.Cmd, tty *os.File) *screen {
	t.Helper()
	sc := &screen{t: t, tty: pollable(t, tty), cmd: cmd, done: make(chan struct{})}
	go sc.read()
	t.Cleanup(func() {
		sc.tty.Close() // hangs up
		cmd.Wait()
	})
	return sc
}

// pollable returns the same terminal as a file whose Close ends a Read.
func pollable(t *testing.T, tty *os.File) *os.File {
	t.Helper()
	defer tty.Close()
	fd, err := unix.Dup(int(tty.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), tty.Name())
}

func (s *screen) read() {
	defer close(s.done)
	buffer := make([]byte, 4096)
	for {
		n, err := s.tty.Read(buffer)
		s.mu.Lock()
		s.shown.Write(buffer[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// send types text.
func (s *screen) send(text string) {
	s.t.Helper()
	if _, err := s.tty.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// sleep types a command that takes for ever and waits until it runs: a key that
// comes earlier reaches the shell.
func (s *screen) sleep() {
	s.t.Helper()
	s.send("sh -c 'echo $((40+2)) sheep; exec sleep 1000'\n")
	s.expect("42 sheep")
}

// resize changes the window, as a terminal emulator does.
func (s *screen) resize(rows, columns uint16) {
	s.t.Helper()
	raw, err := s.tty.SyscallConn()
	if err != nil {
		s.t.Fatal(err)
	}
	var ioctlErr error
	err = raw.Control(func(fd uintptr) {
		ioctlErr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
	if err := errors.Join(err, ioctlErr); err != nil {
		s.t.Fatal(err)
	}
}

// expect waits until text appears behind what was expected before.
func (s *screen) expect(text string) {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		s.mu.Lock()
		rest := s.shown.String()[s.seen:]
		i := strings.Index(rest, text)
		if i >= 0 {
			s.seen += i + len(text)
		}
		s.mu.Unlock()
		if i >= 0 {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%q did not appear; the screen shows:\n%s", text, rest)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// end waits for the command and returns its exit code.
func (s *screen) end() int {
	s.t.Helper()
	select {
	case <-s.done:
	case <-time.After(patience):
		s.t.Fatalf("the command did not end; the screen shows:\n%s", s.shown.String())
	}
	s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

// exits waits for the command, which is to end with a code.
func (s *screen) exits(want int) {
	s.t.Helper()
	if got := s.end(); got != want {
		s.t.Errorf("exit code = %d, want %d", got, want)
	}
}

// resizeAndInterrupt checks what makes a terminal one, in a shell that waits.
func (s *screen) resizeAndInterrupt() {
	s.t.Helper()
	s.resize(44, 90)
	s.send("until [ \"$(stty size)\" = '44 90' ]; do :; done; echo resized\n")
	s.expect("resized\r\n")

	s.sleep()
	s.send("\x03") // Ctrl-C ends the command, not the shell
	s.expect("ready> ")
}

func TestShellIsInteractive(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"file": "content\n"})
	sc := start(t, s, "run", "--preset", "development", "--name", s.Name, "--env", "PS1", "--", "sh")
	sc.expect("ready> ")
	sc.send("tty; stty size\n")
	sc.expect("/dev/pts/")
	sc.expect("30 100")

	sc.resizeAndInterrupt()
	sc.send("echo still $((40+2))\n")
	sc.expect("still 42")
	sc.send("exit 5\n")
	sc.exits(5)
}

func TestJobControl(t *testing.T) {
	testenv.Command(t, "bash")
	s := harness.New(t, binary, nil)
	sc := start(t, s, "run", "--name", s.Name, "--env", "PS1", "--", "bash", "--norc", "--noprofile", "-i")
	sc.expect("ready> ")
	sc.sleep()
	sc.send("\x1a") // Ctrl-Z
	sc.expect("Stopped")
	sc.send("jobs; bg; kill %1; wait; echo all $((1+1)) done\n")
	sc.expect("all 2 done")
	sc.send("exit\n")
	sc.exits(0)
}

func TestEditor(t *testing.T) {
	testenv.Command(t, "vim.tiny")
	s := harness.New(t, binary, map[string]string{"notes.txt": "first\n"})
	sc := start(t, s, "run", "--preset", "development", "--name", s.Name, "--apply", "--", "vim.tiny", "-u", "NONE", "notes.txt")
	sc.expect("first")
	sc.send("Gosecond line\x1b:wq\r")
	sc.exits(0)
	data, err := os.ReadFile(filepath.Join(s.Source, "notes.txt"))
	if want := "first\nsecond line\n"; err != nil || string(data) != want {
		t.Errorf("notes.txt = %q, %v, want %q", data, err, want)
	}
}

// A job in the background runs, and gets what is typed once it is in front.
func TestTheBackgroundOfATerminal(t *testing.T) {
	testenv.Command(t, "bash")
	s := harness.New(t, binary, nil)
	sc := startShell(t, s)
	sc.expect("ready> ")
	sc.send("\"$AGENTFENSE\" run --name one -- sh -c 'echo in $((40+2))' & wait %1; echo ended $?\n")
	sc.expect("in 42")
	sc.expect("ended 0")
	sc.send("\"$AGENTFENSE\" run --name two -- sh -c 'echo asked $((40+3)); read x; echo got $x' &\n")
	sc.expect("asked 43")
	sc.send("echo mine $((40+4))\n") // not the job's
	sc.expect("mine 44")
	sc.send("fg\n")
	sc.expect("run --name two")
	sc.send("words\n")
	sc.expect("got words")
	sc.expect("ready> ")
	sc.send("exit 3\n")
	sc.exits(3)
}

func TestATerminalThatControlsNobody(t *testing.T) {
	s := harness.New(t, binary, nil)
	for _, verb := range [][]string{
		{"run", "--name", s.Name, "--env", "PS1", "--", "sh"},
		{"shell", "--env", "PS1", "--shell", "/bin/sh", s.Name},
	} {
		t.Run(verb[0], func(t *testing.T) {
			sc := startUncontrolled(t, s, verb...)
			sc.expect("ready> ")
			sc.send("tty; stty size\n")
			sc.expect("/dev/pts/")
			sc.expect("30 100")
			sc.sleep()
			sc.send("\x03")
			sc.expect("ready> ")
			sc.send("exit 5\n")
			sc.exits(5)
		})
	}
}

func TestHangUpEndsTheCommand(t *testing.T) {
	for name, start := range map[string]func(*testing.T, *harness.Sandbox, ...string) *screen{
		"of a terminal that controls it": start, "of another": startUncontrolled,
	} {
		t.Run(name, func(t *testing.T) {
			s := harness.New(t, binary, nil)
			sc := start(t, s, "run", "--name", s.Name, "--", "sh", "-c", "echo up; sleep 1000")
			sc.expect("up")
			sc.tty.Close()
			ended := time.AfterFunc(patience, func() {
				t.Error("the command's agentfense did not end")
				sc.cmd.Process.Kill()
			})
			sc.cmd.Wait()
			ended.Stop()
			if got := s.Agentfense("ls").Stdout; !strings.Contains(got, "stopped") {
				t.Errorf("after the terminal went, ls shows %q", got)
			}
		})
	}
}
