package shell

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// SIGINT ends the command, but not the shell or its state. zsh does not always return to
// its prompt, so a time-out may end its session.
func TestInterrupt(t *testing.T) {
	eachShell(t, func(t *testing.T, path string) {
		if filepath.Base(path) == "zsh" {
			return
		}
		s := open(t, path)
		for _, command := range []string{
			"a=1; echo go >&2; while :; do :; done; echo no",
			"echo go >&2; sleep 1000; echo no",
			"f() { sleep 1000; echo no; }; echo go >&2; f; echo no",
			"echo go >&2; sleep 1000 | cat; echo no",
			"echo go >&2; x=$(sleep 1000); echo no",
			"echo go >&2; (sleep 1000; echo no); echo no",
			"sleep 1000 & echo go >&2; wait; echo no",
			"echo go >&2; while :; do sleep 0.001; done; echo no",
		} {
			t.Log(command)
			for again := 0; !s.interrupt(command); again++ {
				if again == 10 {
					t.Fatalf("%q: the shell locks itself each time", command)
				}
				s = open(t, path)
				s.run("a=1")
			}
		}
		if stdout, stderr, _ := s.run("echo $a"); stdout != "1\n" || stderr != "" {
			t.Errorf("after it: %q, %q", stdout, stderr)
		}
	})
}

// interrupt runs a command and ends it by SIGINT. It returns false if the shell hangs:
// busybox ash jumps out of its signal handler, and if the C library held a lock at that
// time, it deadlocks. The time-out of a session then closes it.
func (s *session) interrupt(command string) bool {
	s.t.Helper()
	x := s.start(command)
	<-x.complained // it has begun
	s.awaitPrograms(command)
	short, cancel := context.WithTimeout(s.context(), 20*time.Millisecond)
	_, err := s.Answer(short, x.token)
	cancel()
	if !errdefs.Is(err, errdefs.Deadline) {
		s.t.Fatalf("%q: %v", command, err)
	}
	for round := 0; err != nil; round++ {
		s.signal(unix.SIGINT)
		short, cancel := context.WithTimeout(s.context(), 200*time.Millisecond)
		err = s.Sync(short)
		cancel()
		if err != nil && !errdefs.Is(err, errdefs.Deadline) {
			s.t.Fatalf("%q: %v", command, err)
		}
		if err != nil && filepath.Base(s.cmd.Path) == "ash" && s.waitsForALock() {
			return false
		}
		if round > 10 { // what ignores SIGINT; bash goes on after that
			s.killPrograms()
		}
	}
	for s.killPrograms() { // until none was just being started
		s.Sync(s.context())
	}
	if stdout, stderr := x.output(); strings.TrimSpace(stdout) != "" || !strings.HasPrefix(stderr, "go\n") {
		s.t.Errorf("%q: %q, %q", command, stdout, stderr)
	}
	return true
}

// awaitPrograms waits until the programs of a command of interrupt run, because a shell
// that has only forked may behave differently on SIGINT.
func (s *session) awaitPrograms(command string) {
	s.t.Helper()
	for _, name := range []string{"sleep 1000", "cat"} {
		if !strings.Contains(command, name) {
			continue
		}
		for ctx := s.context(); !strings.Contains(s.programs("args="), "\n"+name+"\n"); {
			if ctx.Err() != nil {
				s.t.Fatalf("%q: %s has not started", command, name)
			}
		}
	}
}

// programs returns a column of ps for each process of the shell's session.
func (s *session) programs(column string) string {
	list, _ := exec.Command("ps", "-o", column, "-s", fmt.Sprint(s.cmd.Process.Pid)).Output() // it fails if there is no such process
	return "\n" + string(list)
}

// waitsForALock reports whether the shell, which has one thread, waits for a lock.
func (s *session) waitsForALock() bool {
	call, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", s.cmd.Process.Pid))
	return err == nil && strings.HasPrefix(string(call), fmt.Sprint(unix.SYS_FUTEX)+" ")
}
