package serve_test

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

func TestSessions(t *testing.T) {
	s := start(t)
	ctx := t.Context()
	cb := s.codebase(map[string]string{"d/f": "x\n"})
	id := s.sandbox(cb)
	made, err := s.sandboxes.CreateSession(ctx, &sandboxv1.CreateSessionRequest{SandboxId: id, Env: map[string]string{"GIVEN": "yes"}})
	if err != nil {
		t.Fatal(err)
	}
	if made.Status != sandboxv1.SessionStatus_SESSION_STATUS_ACTIVE || made.Shell != "/bin/sh" || made.SandboxId != id || made.CreatedAt == nil || made.ClosedAt != nil {
		t.Errorf("made %v", made)
	}
	run := func(command string) *sandboxv1.ExecResult {
		t.Helper()
		got, err := s.sandboxes.SessionExec(ctx, &sandboxv1.SessionExecRequest{SessionId: made.Id, Command: command})
		return must(t, got, err)
	}
	run("cd d; A=1; export B=2; f() { echo \"f $1\"; }")
	if got := run("pwd; echo $A $B $GIVEN; f x; echo err >&2; false"); got.Stdout != "/workspace/d\n1 2 yes\nf x\n" || got.Stderr != "err\n" || got.ExitCode != 1 {
		t.Errorf("got %v", got)
	}
	run("echo changed > f")
	if got, err := s.download(cb, "d/f"); got != "changed\n" || err != nil {
		t.Errorf("the codebase has %q, %v", got, err)
	}
	_, err = s.sandboxes.SessionExec(ctx, &sandboxv1.SessionExecRequest{SessionId: made.Id, Command: "sleep 1000", Timeout: durationpb.New(200 * time.Millisecond)})
	wantCode(t, err, codes.DeadlineExceeded, "timed out")
	if got := run("echo $A"); got.Stdout != "1\n" {
		t.Errorf("after a time-out the session has %q", got.Stdout)
	}
	stream, err := s.sandboxes.SessionExecStream(ctx, &sandboxv1.SessionExecRequest{SessionId: made.Id, Command: "echo streamed; (exit 4)"})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	var last *sandboxv1.ExecOutput
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		last = must(t, m, err)
		out.Write(last.Data)
	}
	if out.String() != "streamed\n" || last.GetExitCode() != 4 {
		t.Errorf("streamed %q, last %v", out.String(), last)
	}

	// The session belongs to the sandbox: another server finds it.
	s.end(syscall.SIGKILL)
	s.serve()
	if got := run("echo $A"); got.Stdout != "1\n" {
		t.Errorf("after a restart the session has %q", got.Stdout)
	}
	list, err := s.sandboxes.ListSessions(ctx, &sandboxv1.ListSessionsRequest{SandboxId: id})
	if got := must(t, list, err).Sessions; len(got) != 1 || got[0].Id != made.Id {
		t.Errorf("listed %v", got)
	}

	if got := run("exit 5"); got.ExitCode != 5 {
		t.Errorf("exit code %d", got.ExitCode)
	}
	got, err := s.sandboxes.GetSession(ctx, &sandboxv1.GetSessionRequest{SessionId: made.Id})
	if must(t, got, err).Status != sandboxv1.SessionStatus_SESSION_STATUS_CLOSED || got.ClosedAt == nil {
		t.Errorf("after exit it is %v", got)
	}
	_, err = s.sandboxes.SessionExec(ctx, &sandboxv1.SessionExecRequest{SessionId: made.Id, Command: "true"})
	wantCode(t, err, codes.FailedPrecondition, "session is closed")
	_, err = s.sandboxes.DestroySession(ctx, &sandboxv1.DestroySessionRequest{SessionId: made.Id})
	must(t, 0, err)
	_, err = s.sandboxes.GetSession(ctx, &sandboxv1.GetSessionRequest{SessionId: made.Id})
	wantCode(t, err, codes.NotFound, made.Id)

	_, err = s.sandboxes.CreateSession(ctx, &sandboxv1.CreateSessionRequest{SandboxId: id, Shell: "/no/shell"})
	wantCode(t, err, codes.InvalidArgument, "shell")
	_, err = s.sandboxes.SessionExec(ctx, &sandboxv1.SessionExecRequest{Command: "true"})
	wantCode(t, err, codes.InvalidArgument, "session_id")
	_, err = s.sandboxes.SessionExec(ctx, &sandboxv1.SessionExecRequest{SessionId: made.Id})
	wantCode(t, err, codes.InvalidArgument, "command")
	stopped := s.sandbox(cb)
	_, err = s.sandboxes.StopSandbox(ctx, &sandboxv1.StopSandboxRequest{SandboxId: stopped})
	must(t, 0, err)
	_, err = s.sandboxes.CreateSession(ctx, &sandboxv1.CreateSessionRequest{SandboxId: stopped})
	wantCode(t, err, codes.FailedPrecondition, "sandbox is not running")
}
