package serve_test

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

func TestASandboxWhoseDockerIsGoneStaysWholeUntilItIsBack(t *testing.T) {
	s, host := startDocker(t)
	cb := s.codebase(nil)
	id := s.sandbox(cb)
	s.exec(id, "echo kept > f")
	s.killSupervisor(id) // so that its container is left
	socket := strings.TrimPrefix(host, "unix://")
	if err := os.Rename(socket, socket+".away"); err != nil {
		t.Fatal(err)
	}
	_, err := s.sandboxes.DestroySandbox(t.Context(), &sandboxv1.DestroySandboxRequest{SandboxId: id})
	wantCode(t, err, codes.FailedPrecondition, "no daemon answers")
	_, err = s.sandboxes.StartSandbox(t.Context(), &sandboxv1.StartSandboxRequest{SandboxId: id})
	wantCode(t, err, codes.FailedPrecondition, "no daemon answers")
	if got := s.status(id); got != sandboxv1.SandboxStatus_SANDBOX_STATUS_ERROR {
		t.Errorf("what cannot be destroyed is %s", got)
	}
	if err := os.Rename(socket+".away", socket); err != nil {
		t.Fatal(err)
	}
	empty, err := s.sandboxes.DestroySandbox(t.Context(), &sandboxv1.DestroySandboxRequest{SandboxId: id})
	must(t, empty, err)
	if n := containers(t, host); n != 0 {
		t.Errorf("%d containers are left", n)
	}
	if got, err := s.download(cb, "f"); got != "kept\n" || err != nil {
		t.Errorf("the codebase has %q, %v", got, err)
	}
}
