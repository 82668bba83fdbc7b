package serve_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// A supervisor that does not answer, because it is stopped or swapped out, holds
// up its own sandbox: not the others of its codebase, nor the next server.
func TestASupervisorThatHangsHoldsUpNobodyElse(t *testing.T) {
	s := start(t)
	cb := s.codebase(map[string]string{"f": "old\n"})
	hung, other := s.sandbox(cb), s.sandbox(cb)
	made, err := s.sandboxes.CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{SandboxId: other})
	session := must(t, made, err).Id
	s.signalSupervisor(hung, syscall.SIGSTOP)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	r, err := s.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: other, Command: "echo new > f"})
	must(t, r, err)
	if got, err := s.download(cb, "f"); got != "new\n" || err != nil {
		t.Errorf("the codebase has %q, %v", got, err)
	}
	// Who asks for the one that hangs learns it, long before the end of ctx.
	_, err = s.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: hung, Command: "true", Timeout: durationpb.New(time.Second)})
	if code := status.Code(err); code != codes.FailedPrecondition && code != codes.DeadlineExceeded {
		t.Errorf("exec where the supervisor hangs: %v", err)
	}
	_, err = s.sandboxes.GetStats(ctx, &sandboxv1.GetStatsRequest{SandboxId: hung})
	if code := status.Code(err); code != codes.FailedPrecondition {
		t.Errorf("stats where the supervisor hangs: %v", err)
	}
	s.end(syscall.SIGKILL)
	s.serve()
	r, err = s.sandboxes.SessionExec(ctx, &sandboxv1.SessionExecRequest{SessionId: session, Command: "cat f"})
	if got := must(t, r, err).Stdout; got != "new\n" {
		t.Errorf("the other sandbox shows %q", got)
	}
	list, err := s.sandboxes.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{})
	if got := must(t, list, err).Sandboxes; len(got) != 2 {
		t.Errorf("listed %v", got)
	}
	// Whoever wants it away need not wait for ever either.
	gone, err := s.sandboxes.DestroySandbox(ctx, &sandboxv1.DestroySandboxRequest{SandboxId: hung})
	must(t, gone, err)
}
