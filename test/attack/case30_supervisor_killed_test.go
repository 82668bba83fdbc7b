package attack_test

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// If a supervisor is killed with -9 while a command runs, the command, the mount and the
// cgroup end with it. Written data stays intact, and the next run continues.
func TestSupervisorKilledWhileACommandRuns(t *testing.T) {
	tests := []struct {
		name   string
		script string
		flags  []string
	}{
		{name: "while the command waits", script: "echo ready; exec sleep 600"},
		{name: "while the command writes", script: "echo ready; while :; do echo more >> many; done"},
		{
			name:   "while the command copies files up",
			script: "echo ready; while :; do echo more >> big; rm -f big2; cp big big2; done",
		},
		{
			name: "while limits hold", script: "echo ready; while :; do sh -c 'echo more >> many'; done",
			flags: []string{"--pids", "50"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.flags != nil {
				testenv.Cgroup(t, "pids")
			}
			big := strings.Repeat("source\n", 1<<20)
			s := harness.New(t, binary, map[string]string{"big": big, "raw": "raw\n"})
			args := append([]string{"run", "--name", s.Name, "--preset", "full-access"}, tt.flags...)
			cmd := s.Command(context.Background(), append(args, "--", "sh", "-c", "echo whole > written; rm raw; "+tt.script)...)
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var stderr strings.Builder
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
				t.Fatalf("%q, %v", line, err)
			}
			doc := inspect(t, s, s.Name)
			if err := unix.Kill(doc.Running.PID, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // the exit code tells
			if got := cmd.ProcessState.ExitCode(); got != 125 {
				t.Errorf("exit code %d, want 125\n%s", got, stderr.String())
			}
			if !strings.Contains(stderr.String(), "supervisor has ended") {
				t.Errorf("stderr = %q", stderr.String())
			}
			nothingLeft(t, s, doc)
			resumesWhole(t, s, big)
		})
	}
}

// resumesWhole checks that the delta is whole and the source untouched.
func resumesWhole(t *testing.T, s *harness.Sandbox, big string) {
	t.Helper()
	if s.Read("big") != big || s.Read("raw") != "raw\n" {
		t.Error("the source changed")
	}
	wantCode(t, s.Agentfense("audit", s.Name, "--verify"), 0)
	r := s.Run(`set -e
test ! -e raw
cat written
if test -e many; then ! grep -vx more many; fi
head -c ` + strconv.Itoa(len(big)) + ` big | grep -vxc source || true`)
	wantCode(t, r, 0)
	if r.Stdout != "whole\n0\n" {
		t.Errorf("the resumed sandbox shows %q", r.Stdout)
	}
}

// The same holds for a supervisor that is killed during its set-up.
func TestSupervisorKilledWhileItStarts(t *testing.T) {
	tests := []struct {
		name    string
		reached func(sandbox string) bool
	}{
		{"as soon as it exists", func(string) bool { return true }},
		{"when it holds the lock", func(dir string) bool { return exists(dir + "/supervisor.log") }},
		{"when it has its layers", func(dir string) bool { return exists(dir + "/layers/top") }},
		{"when it mounts", func(dir string) bool { return exists(dir + "/view") }},
		{"when it serves", func(dir string) bool { return exists(dir + "/control") }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			testenv.Cgroup(t, "pids")
			s := harness.New(t, binary, map[string]string{"a": "a\n"})
			wantCode(t, s.Agentfense("create", s.Name, "--pids", "50"), 0)
			doc := inspect(t, s, s.Name)
			cmd := s.Command(context.Background(), "run", "--name", s.Name, "--", "sleep", "600")
			var stderr strings.Builder
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var supervisor int
			testenv.Eventually(t, "there is a supervisor", func() bool {
				supervisor = supervisorBelow(cmd.Process.Pid)
				return supervisor != 0
			})
			testenv.Eventually(t, "the moment has come", func() bool { return tt.reached(doc.Directory) })
			if err := unix.Kill(supervisor, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // the exit code tells
			if got := cmd.ProcessState.ExitCode(); got != 125 || !strings.Contains(stderr.String(), "supervisor") {
				t.Errorf("exit code %d, want 125\n%s", got, stderr.String())
			}
			nothingLeft(t, s, doc)
			if r := s.Run("cat a"); r.Code != 0 || r.Stdout != "a\n" {
				t.Errorf("the next run: %d, %q, %s", r.Code, r.Stdout, r.Stderr)
			}
		})
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// supervisorBelow returns the supervisor that a process has started, or 0.
func supervisorBelow(pid int) int {
	lists, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children") // gone meanwhile: none
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for child := range strings.FieldsSeq(string(children)) {
			cmdline, _ := os.ReadFile("/proc/" + child + "/cmdline")
			if strings.Contains(string(cmdline), "\x00__supervise\x00") {
				n, _ := strconv.Atoi(child)
				return n
			}
		}
	}
	return 0
}

// The end of one sandbox's supervisor does not affect another sandbox.
func TestSupervisorKilledLeavesOthersAlone(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"a": "a\n"})
	for _, name := range []string{"one", "two"} {
		wantCode(t, s.Agentfense("run", "--detach", "--name", name, "--", "sleep", "600"), 0)
		t.Cleanup(func() { s.Agentfense("stop", name) })
	}
	one := inspect(t, s, "one")
	if err := unix.Kill(one.Running.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the sandbox is seen stopped", func() bool { return inspect(t, s, "one").Status == "stopped" })
	if r := s.Agentfense("exec", "two", "--", "cat", "a"); r.Code != 0 || r.Stdout != "a\n" {
		t.Errorf("the other sandbox: %d, %q, %s", r.Code, r.Stdout, r.Stderr)
	}
	testenv.Eventually(t, "no process of the killed one is left", func() bool { return !hasLive(one.Running.InitPID) })
	if r := s.Agentfense("exec", "one", "--", "cat", "a"); r.Code != 0 || r.Stdout != "a\n" {
		t.Errorf("the killed sandbox again: %d, %q, %s", r.Code, r.Stdout, r.Stderr)
	}
}
