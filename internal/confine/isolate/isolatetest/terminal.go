package isolatetest

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/guest"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

var terminalCases = []testCase{
	{name: "a terminal is the command's own", run: testTerminal},
	{name: "keys reach the foreground process group", run: testKeys},
	{name: "job control works", run: testJobControl},
	{name: "programs inside can make terminals", run: testInnerTerminals},
}

// terminals mounts a devpts instance as a supervisor does.
func terminals(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pts")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("devpts", dir, "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// session is a command on a terminal.
type session struct {
	*guest.Exec
	t      testing.TB
	master *os.File
	seen   bytes.Buffer
}

func (b *box) session(argv ...string) *session {
	b.t.Helper()
	fd, err := unix.Open(filepath.Join(b.spec.DevPTS, "ptmx"), unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	master := os.NewFile(uintptr(fd), "ptmx")
	b.t.Cleanup(func() { master.Close() })
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 31, Col: 77})
	}
	if err == nil && os.Geteuid() == 0 {
		err = os.Chown(filepath.Join(b.spec.DevPTS, strconv.Itoa(number)), hostUser, hostUser)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	x, err := b.conn.Exec(ctx, guest.Command{Argv: argv, Env: basicEnv, Dir: "/workspace", TTY: number}, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return &session{Exec: x, t: b.t, master: master}
}

func (s *session) write(text string) {
	s.t.Helper()
	if _, err := s.master.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// expect reads until text has appeared, and drops the output before it.
func (s *session) expect(text string) {
	s.t.Helper()
	s.master.SetReadDeadline(time.Now().Add(patience))
	buffer := make([]byte, 4096)
	for !bytes.Contains(s.seen.Bytes(), []byte(text)) {
		n, err := s.master.Read(buffer)
		s.seen.Write(buffer[:n])
		if err != nil {
			s.t.Fatalf("want %q, got %q: %v", text, s.seen.Bytes(), err)
		}
	}
	s.seen.Next(bytes.Index(s.seen.Bytes(), []byte(text)) + len(text))
}

// foreground waits until the terminal's foreground process group is another
// than old, and returns it.
func (s *session) foreground(old int) int {
	s.t.Helper()
	raw, err := s.master.SyscallConn()
	if err != nil {
		s.t.Fatal(err)
	}
	group := 0
	testenv.Eventually(s.t, "another process group is in the foreground", func() bool {
		raw.Control(func(fd uintptr) { group, err = unix.IoctlGetInt(int(fd), unix.TIOCGPGRP) })
		return err == nil && group > 0 && group != old
	})
	return group
}

func (s *session) wait() guest.Exit {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	exit, err := s.Wait(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	return exit
}

func withTerminals(t *testing.T, factory Factory) *box {
	t.Helper()
	spec := newSpec(t)
	spec.DevPTS = terminals(t)
	return start(t, factory, spec)
}

func testTerminal(t *testing.T, factory Factory) {
	b := withTerminals(t, factory)
	s := b.session("sh", "-c", `tty; stty size; test -t 0 && test -t 1 && test -t 2 && : < /dev/tty && : > /dev/tty && echo all; for f in /proc/self/fd/*; do echo fd ${f##*/}; done; exit 5`)
	s.expect("/dev/pts/")
	s.expect("31 77")
	s.expect("all")
	s.expect("fd 2")
	if exit := s.wait(); exit.Code != 5 {
		t.Errorf("got %+v", exit)
	}
	if strings.Contains(s.seen.String(), "fd 4") {
		t.Errorf("more descriptors: %s", s.seen.String())
	}
}

func testKeys(t *testing.T, factory Factory) {
	b := withTerminals(t, factory)
	s := b.session("cat")
	s.write("ready\n")
	s.expect("ready\r\nready")
	s.write("\x03")
	if exit := s.wait(); exit.Signal != int(unix.SIGINT) {
		t.Errorf("Ctrl-C: got %+v", exit)
	}
	s = b.session("cat")
	s.write("ready\n")
	s.expect("ready\r\nready")
	if err := s.Signal(unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if exit := s.wait(); exit.Signal != int(unix.SIGHUP) {
		t.Errorf("hang-up: got %+v", exit)
	}
}

func testJobControl(t *testing.T, factory Factory) {
	b := withTerminals(t, factory)
	s := b.session("sh", "-i")
	s.expect("$ ")
	shell := s.foreground(0)
	s.write("sleep 1000\n")
	job := s.foreground(shell)
	s.write("\x1a")
	if got := s.foreground(job); got != shell {
		t.Errorf("after Ctrl-Z group %d is in the foreground, want the shell, %d", got, shell)
	}
	s.expect("Stopped")
	s.write("fg\n")
	s.foreground(shell)
	if err := s.Signal(unix.SIGTERM); err != nil { // the job's, not the shell's
		t.Fatal(err)
	}
	s.expect("Terminated")
	s.write("exit 7\n")
	if exit := s.wait(); exit.Code != 7 {
		t.Errorf("got %+v", exit)
	}
}

func testInnerTerminals(t *testing.T, factory Factory) {
	b := withTerminals(t, factory)
	if got := b.must(`command -v script >/dev/null || { echo yes; exit; }; script -qec 'test -t 0 && echo yes' /dev/null </dev/null | tr -d '\r'`); got != "yes" {
		t.Errorf("script(1): %q", got)
	}
}
