package shell

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// The first signal ends the command, but not the shell or its state. zsh does not always return to
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
			s.interrupt(command)
		}
		if stdout, stderr, _ := s.run("echo $a"); stdout != "1\n" || stderr != "" {
			t.Errorf("after it: %q, %q", stdout, stderr)
		}
	})
}

// A shell comes back from a loop of built-in commands whenever it is interrupted. busybox ash does
// not if it is interrupted by SIGINT while it writes or forgets an error of its output.
func TestInterruptAtAnyMoment(t *testing.T) {
	eachShell(t, func(t *testing.T, path string) {
		rounds := 10
		switch filepath.Base(path) {
		case "ash":
			rounds = 400
		case "zsh":
			return
		}
		s := open(t, path)
		s.run("a=1")
		for i := range rounds {
			x := s.start("while :; do :; done; echo no")
			time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
			for err := errdefs.New(errdefs.Deadline, "not interrupted"); err != nil; {
				s.signal(s.Interrupts()[0])
				short, cancel := context.WithTimeout(s.context(), 20*time.Millisecond)
				err = s.Sync(short)
				cancel()
				if err != nil && !errdefs.Is(err, errdefs.Deadline) {
					t.Fatal(err)
				}
			}
			if stdout, stderr := x.output(); stdout+stderr != "" {
				t.Fatalf("round %d: %q, %q", i, stdout, stderr)
			}
		}
		if stdout, stderr, _ := s.run("echo $a"); stdout != "1\n" || stderr != "" {
			t.Errorf("after it: %q, %q", stdout, stderr)
		}
	})
}

// interrupt runs a command and ends it by the shell's first signal.
func (s *session) interrupt(command string) {
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
		s.interruptOnce()
		short, cancel := context.WithTimeout(s.context(), 200*time.Millisecond)
		err = s.Sync(short)
		cancel()
		if err != nil && !errdefs.Is(err, errdefs.Deadline) {
			s.t.Fatalf("%q: %v", command, err)
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
}

// interruptOnce sends the shell its own signal and the programs that it runs SIGINT.
func (s *session) interruptOnce() {
	s.signal(s.Interrupts()[0])
	if s.Interrupts()[0] != unix.SIGINT {
		s.signalPrograms(unix.SIGINT)
	}
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
