package serve_test

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// refused runs the command line on what it is to refuse, and returns what it
// says.
func (s *server) refused(args ...string) string {
	s.t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = s.environ()
	out, err := cmd.CombinedOutput()
	if err == nil {
		s.t.Errorf("agentfense %s is not refused: %s", strings.Join(args, " "), out)
	}
	return string(out)
}

func TestTheCommandLineKnowsAServersSandboxes(t *testing.T) {
	s := start(t)
	cb := s.codebase(map[string]string{"f": "old\n", "g": "old\n"})
	made, err := s.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Permissions: everything, Name: "called"})
	id := must(t, made, err).Id
	started, err := s.sandboxes.StartSandbox(t.Context(), &sandboxv1.StartSandboxRequest{SandboxId: id})
	must(t, started, err)

	for _, name := range []string{id, "called"} {
		for _, tt := range []struct {
			args []string
			want string
		}{
			{[]string{"ls"}, "called"},
			{[]string{"inspect", name}, "codebase:     " + cb},
			{[]string{"exec", name, "--", "sh", "-c", "cat f; echo new > f; echo new > g"}, "old"},
			{[]string{"diff", name, "--name-status"}, "M\tf\nM\tg\n"},
			{[]string{"discard", name, "f"}, "discarded"},
			{[]string{"diff", name, "--name-status"}, "M\tg\n"},
			{[]string{"apply", name, "--dry-run"}, "would apply 1 change"},
			{[]string{"discard", name}, "discarded"},
			{[]string{"audit", name}, "command_executed"},
		} {
			if got := s.agentfense(tt.args...); !strings.Contains(got, tt.want) {
				t.Errorf("agentfense %s says %q, want %q", strings.Join(tt.args, " "), got, tt.want)
			}
		}
	}
	s.agentfense("exec", id, "--", "sh", "-c", "echo mine > g")
	if got := s.refused("apply", id); !strings.Contains(got, "--endpoint") || s.have(cb, "g") != "old\n" {
		t.Errorf("apply says %q, the codebase has %q", got, s.have(cb, "g"))
	}
	s.exec(id, "true")
	if got := s.have(cb, "g"); got != "mine\n" {
		t.Errorf("after the next command of a client the codebase has %q", got)
	}

	s.agentfense("stop", id)
	if got := s.status(id); got != sandboxv1.SandboxStatus_SANDBOX_STATUS_STOPPED {
		t.Errorf("after agentfense stop it is %s", got)
	}
	s.agentfense("rm", id)
	_, err = s.sandboxes.GetSandbox(t.Context(), &sandboxv1.GetSandboxRequest{SandboxId: id})
	wantCode(t, err, codes.NotFound)
}

func TestAServerLeavesTheSandboxesOfRunAlone(t *testing.T) {
	s := start(t, "AGENTFENSE_SANDBOX_DEFAULT_EXPIRATION=1s", "AGENTFENSE_SANDBOX_CLEANUP_INTERVAL=1s")
	cb := s.codebase(nil)
	run := exec.Command(binary, "run", "--name", "mine", "--write", "**", "--", "sh", "-c", "echo delta > f")
	run.Dir, run.Env = t.TempDir(), s.environ()
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	id := ""
	for field := range strings.FieldsSeq(s.agentfense("inspect", "mine")) {
		if strings.HasPrefix(field, "sb_") && id == "" {
			id = field
		}
	}
	untouched := func() {
		t.Helper()
		_, err := s.sandboxes.GetSandbox(t.Context(), &sandboxv1.GetSandboxRequest{SandboxId: id})
		wantCode(t, err, codes.NotFound)
		list, err := s.sandboxes.ListSandboxes(t.Context(), &sandboxv1.ListSandboxesRequest{})
		for _, box := range must(t, list, err).Sandboxes {
			if box.Id == id {
				t.Errorf("the server lists %v", box)
			}
		}
		if got := s.agentfense("diff", "mine", "--name-status"); got != "A\tf\n" {
			t.Errorf("its delta has %q", got)
		}
	}
	untouched()
	_, err := s.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Name: "mine"})
	wantCode(t, err, codes.AlreadyExists, "mine")
	expiring, err := s.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{CodebaseId: cb})
	gone := must(t, expiring, err).Id
	testenv.Eventually(t, "the server's own has expired and is gone", func() bool {
		_, err := s.sandboxes.GetSandbox(t.Context(), &sandboxv1.GetSandboxRequest{SandboxId: gone})
		return err != nil
	})
	untouched()
	s.end(syscall.SIGKILL)
	s.serve()
	untouched()
}
