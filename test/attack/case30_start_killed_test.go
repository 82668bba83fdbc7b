package attack_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// Bubblewrap's child waits for its parent on an eventfd, which has no end of file:
// killed at the wrong moment, the parent leaves it for good. These tests hold
// bubblewrap at that moment.

// heldStart is a `run` whose bubblewrap is held.
type heldStart struct {
	s      *harness.Sandbox
	cli    int
	family []harness.Process
	child  int // of bubblewrap
}

func (h *heldStart) pid(role harness.Role) int {
	for _, p := range h.family {
		if p.Role == role {
			return p.PID
		}
	}
	return 0
}

// startAndHold runs a command, kills what do says at the moment, and returns with
// what exit code and after how long run ended.
func startAndHold(t *testing.T, s *harness.Sandbox, moment harness.Moment, do func(h *heldStart)) (h *heldStart, code int, took time.Duration) {
	t.Helper()
	fake := filepath.Join(t.TempDir(), "bwrap")
	if err := os.WriteFile(fake, []byte(harness.StoppedBwrap), 0o755); err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(fake); dir != os.TempDir() && len(dir) > 1; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := s.Command(context.Background(), "run", "--name", s.Name, "--", "true")
	cmd.Env = append(cmd.Env, "AGENTFENSE_RUNTIME_BWRAP_PATH="+fake)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h = &heldStart{s: s, cli: cmd.Process.Pid}
	testenv.Eventually(t, "bwrap has stopped itself", func() bool {
		h.family = harness.Processes(s.Home)
		return h.pid(harness.Bwrap) != 0 && stateOf(h.pid(harness.Bwrap)) == "T"
	})
	var struck time.Time
	err := harness.Follow(h.pid(harness.Bwrap), moment, func(_, child int) {
		h.child = child
		struck = time.Now()
		do(h)
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the code says how
	t.Logf("run said: %s", stderr.String())
	return h, cmd.ProcessState.ExitCode(), time.Since(struck)
}

// stateOf is the letter that proc_pid_stat(5) has for the state of a process.
func stateOf(pid int) string {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, rest, _ := strings.Cut(string(stat), ") ")
	state, _, _ := strings.Cut(rest, " ")
	return state
}

// kill kills processes.
func kill(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Errorf("kill %d: %v", pid, err)
		}
	}
}

// killToTheEnd kills processes and waits until no thread of theirs is left, so
// that whoever was bound to them has its signal.
func killToTheEnd(t *testing.T, pids ...int) {
	t.Helper()
	kill(t, pids...)
	testenv.Eventually(t, "they have ended", func() bool {
		for _, pid := range pids {
			tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/status") // gone: none
			for _, task := range tasks {
				status, err := os.ReadFile(task)
				if err == nil && !strings.Contains(string(status), "\nState:\tZ") {
					return false
				}
			}
		}
		return true
	})
}

var moments = []harness.Moment{harness.WhenBorn, harness.WhenBinding}

// whoRuns are the users that start sandboxes.
var whoRuns = map[string][]harness.Option{"root": nil, "an ordinary user": {harness.Ordinary}}

// A supervisor that is killed while its sandbox starts leaves no process: the command that
// started it removes the leftovers.
func TestSupervisorKilledWhileBwrapStarts(t *testing.T) {
	for who, options := range whoRuns {
		for _, moment := range moments {
			t.Run(who+", "+string(moment), func(t *testing.T) {
				testenv.Root(t)
				s := harness.New(t, binary, map[string]string{"a": "a\n"}, options...)
				h, code, _ := startAndHold(t, s, moment, func(h *heldStart) { killToTheEnd(t, h.pid(harness.Supervisor)) })
				if code != 125 {
					t.Errorf("exit code %d, want 125", code)
				}
				if hasLive(h.child) {
					t.Errorf("bwrap's child %d is left: %s", h.child, stateOf(h.child))
					kill(t, h.child)
				}
				if r := s.Run("cat a"); r.Code != 0 || r.Stdout != "a\n" {
					t.Errorf("the next run: %d, %q, %s", r.Code, r.Stdout, r.Stderr)
				}
			})
		}
	}
}

// If the starting command is killed too, the next verb that starts, stops or removes the
// sandbox removes the leftovers.
func TestSupervisorAndStarterKilledWhileBwrapStarts(t *testing.T) {
	next := map[string]func(s *harness.Sandbox) harness.Result{
		"run":        func(s *harness.Sandbox) harness.Result { return s.Run("cat a") },
		"stop":       func(s *harness.Sandbox) harness.Result { return s.Agentfense("stop", s.Name) },
		"rm":         func(s *harness.Sandbox) harness.Result { return s.Agentfense("rm", s.Name) },
		"rm --force": func(s *harness.Sandbox) harness.Result { return s.Agentfense("rm", "--force", s.Name) },
		// Others that take the sandbox's lock do not hide that something is left.
		"diff, discard, run": func(s *harness.Sandbox) harness.Result {
			wantCode(t, s.Agentfense("diff", s.Name), 0)
			wantCode(t, s.Agentfense("discard", s.Name), 0)
			return s.Run("cat a")
		},
	}
	for who, options := range whoRuns {
		for verb, clear := range next {
			t.Run(who+", "+verb, func(t *testing.T) {
				testenv.Root(t)
				s := harness.New(t, binary, map[string]string{"a": "a\n"}, options...)
				h, _, _ := startAndHold(t, s, harness.WhenBinding, func(h *heldStart) { killToTheEnd(t, h.cli, h.pid(harness.Supervisor)) })
				testenv.Eventually(t, "bwrap has ended", func() bool { return !hasLive(h.pid(harness.Bwrap)) })
				if !hasLive(h.child) {
					t.Fatal("bwrap has left nothing: nothing is tested")
				}
				r := clear(s)
				wantCode(t, r, 0)
				if hasLive(h.child) {
					t.Errorf("bwrap's child %d is left: %s\n%s", h.child, stateOf(h.child), r.Stderr)
					kill(t, h.child)
				}
			})
		}
	}
}

// startNoticed is far below the patience of five seconds each that a start had with
// what a killed bubblewrap left.
const startNoticed = 4 * time.Second

// A bubblewrap that is killed while its sandbox starts is noticed at once, and
// leaves no process.
func TestBwrapKilledWhileItStarts(t *testing.T) {
	for who, options := range whoRuns {
		for _, moment := range moments {
			t.Run(who+", "+string(moment), func(t *testing.T) {
				testenv.Root(t)
				s := harness.New(t, binary, map[string]string{"a": "a\n"}, options...)
				h, code, took := startAndHold(t, s, moment, func(h *heldStart) { kill(t, h.pid(harness.Bwrap)) })
				if code != 125 || took > startNoticed {
					t.Errorf("exit code %d after %v, want 125 at once", code, took)
				}
				if hasLive(h.child) {
					t.Errorf("bwrap's child %d is left: %s", h.child, stateOf(h.child))
					kill(t, h.child)
				}
				if r := s.Run("cat a"); r.Code != 0 || r.Stdout != "a\n" {
					t.Errorf("the next run: %d, %q, %s", r.Code, r.Stdout, r.Stderr)
				}
			})
		}
	}
}

// The next rm removes the leftovers of commands that were killed while they created or
// removed a sandbox.
func TestRmRemovesWhatKilledCommandsLeft(t *testing.T) {
	for who, options := range whoRuns {
		t.Run(who, func(t *testing.T) {
			testenv.Root(t)
			s := harness.New(t, binary, map[string]string{"a": "a\n"}, options...)
			wantCode(t, s.Agentfense("create", s.Name), 0)
			all := filepath.Join(s.Home, "sandboxes")
			owner, err := os.Stat(all)
			if err != nil {
				t.Fatal(err)
			}
			ids := owner.Sys().(*syscall.Stat_t)
			for _, dir := range []string{".gone-0123456789abcdef", ".gone-0123456789abcdef/view", ".making-sb_0123456789abcdef"} {
				err := os.Mkdir(filepath.Join(all, dir), 0o700)
				if err == nil {
					err = os.Chown(filepath.Join(all, dir), int(ids.Uid), int(ids.Gid))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			wantCode(t, s.Agentfense("rm", s.Name), 0)
			if left, err := os.ReadDir(all); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}
