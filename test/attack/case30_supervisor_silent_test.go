package attack_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// hangGuard is far beyond what a verb may wait for a silent supervisor, and far
// below what a hanging one would.
const hangGuard = 60 * time.Second

// verb runs a verb that must end before hangGuard.
func verb(t *testing.T, s *harness.Sandbox, args ...string) harness.Result {
	t.Helper()
	began := time.Now()
	r := s.Agentfense(args...)
	if took := time.Since(began); took > hangGuard {
		t.Errorf("agentfense %q took %s", args, took)
	}
	return r
}

// wantSilent checks that a verb gave up on the supervisor with a code, and said so.
func wantSilent(t *testing.T, r harness.Result, code int) {
	t.Helper()
	if r.Code != code || !strings.Contains(r.Stderr, "does not answer") || !strings.Contains(r.Stderr, "stop --force") {
		t.Errorf("exit code %d, want %d and the remedy\n%s", r.Code, code, r.Stderr)
	}
}

// A supervisor that a signal has stopped does not answer. No verb waits for it beyond its
// own time-out, no action is done partly, and --force ends it.
func TestSupervisorIsSilent(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"a": "a\n"})
	wantCode(t, s.Agentfense("run", "--detach", "--name", s.Name, "--preset", "full-access", "--", "sleep", "600"), 0)
	wantCode(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", "echo new > new"), 0)
	doc := inspect(t, s, s.Name)
	pid := doc.Running.PID
	stop := func() {
		t.Helper()
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGCONT) })

	stop()
	wantSilent(t, verb(t, s, "exec", "--timeout", "3s", s.Name, "--", "touch", "late"), 124)
	wantSilent(t, verb(t, s, "exec", "--timeout", "1h", s.Name, "--", "touch", "late"), 125)
	wantSilent(t, verb(t, s, "run", "--name", s.Name, "--", "touch", "late"), 125)
	wantSilent(t, verb(t, s, "inspect", s.Name), 1)
	wantSilent(t, verb(t, s, "apply", s.Name), 1)
	wantSilent(t, verb(t, s, "discard", s.Name), 1)
	for _, args := range [][]string{{"ls"}, {"diff", s.Name, "--stat"}} {
		wantCode(t, verb(t, s, args...), 0)
	}
	if r := verb(t, s, "rm", s.Name); r.Code == 0 {
		t.Error("a sandbox whose supervisor lives was removed")
	}
	if _, err := os.Lstat(filepath.Join(s.Source, "new")); err == nil {
		t.Error("apply brought a file over although the supervisor did not answer")
	}

	// When it goes on, so does all else, and what was given up does not happen.
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if r := s.Agentfense("exec", s.Name, "--", "sh", "-c", "cat new; test ! -e late"); r.Code != 0 || r.Stdout != "new\n" {
		t.Errorf("after it went on: exit code %d, %q\n%s", r.Code, r.Stdout, r.Stderr)
	}

	// A command that runs already keeps to its time-out, too.
	ctx, cancel := context.WithTimeout(t.Context(), hangGuard)
	defer cancel()
	command := s.Command(ctx, "exec", "--timeout", "3s", s.Name, "--", "sh", "-c", "touch begun; sleep 600")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the command runs", func() bool {
		return strings.Contains(s.Agentfense("diff", s.Name, "--name-status").Stdout, "begun")
	})
	stop()
	_ = command.Wait()
	if code := command.ProcessState.ExitCode(); code != 124 {
		t.Errorf("a running command: exit code %d, want 124", code)
	}

	r := verb(t, s, "stop", "--force", s.Name)
	if r.Code != 0 || !strings.Contains(r.Stderr, "was killed") {
		t.Errorf("stop --force: exit code %d\n%s", r.Code, r.Stderr)
	}
	nothingLeft(t, s, doc)
	prints(t, s, "cat new", "new\n")
}

func TestRmForceEndsASilentSupervisor(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"a": "a\n"})
	wantCode(t, s.Agentfense("run", "--detach", "--name", s.Name, "--", "sleep", "600"), 0)
	doc := inspect(t, s, s.Name)
	if err := unix.Kill(doc.Running.PID, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	wantCode(t, verb(t, s, "rm", "--force", s.Name), 0)
	nothingLeft(t, s, doc)
}
