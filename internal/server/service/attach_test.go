package service_test

import (
	"context"
	"strings"
	"testing"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// TestManyTakeUpOneCommand has clients come and go, with input of each.
func TestManyTakeUpOneCommand(t *testing.T) {
	w := newWorld(t, nil)
	id := w.sandbox(t.Context(), w.codebase(t.Context(), "me"))
	ctx, leave := context.WithCancel(t.Context())
	call, err := w.sandboxes.Attach(ctx)
	if err != nil {
		t.Fatal(err)
	}
	start := &sandboxv1.AttachRequest_Start{SandboxId: id, Argv: []string{"sh", "-c", "while read x; do echo got $x; done; exit 3"}, Detach: true}
	if err := call.Send(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Start_{Start: start}}); err != nil {
		t.Fatal(err)
	}
	first, err := call.Recv()
	if err != nil || first.ExecId == "" {
		t.Fatalf("the first answer is %v, %v", first, err)
	}
	leave()
	resume := &sandboxv1.AttachRequest_Resume{SandboxId: id, ExecId: first.ExecId}
	want := ""
	for _, word := range []string{"one", "two", "three"} {
		ctx, leave := context.WithCancel(t.Context())
		call := w.resume(ctx, resume)
		if err := call.Send(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Stdin{Stdin: []byte(word + "\n")}}); err != nil {
			t.Fatal(err)
		}
		want += "got " + word + "\n"
		if got, _ := receive(t, call, want); got != want {
			t.Errorf("heard %q, want %q", got, want)
		}
		leave()
	}
	last := w.resume(t.Context(), resume)
	if err := last.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if got, exit := receive(t, last, ""); got != want || exit != 3 {
		t.Errorf("heard %q and %d, want %q and 3", got, exit, want)
	}
}

// resume takes a command up.
func (w *world) resume(ctx context.Context, r *sandboxv1.AttachRequest_Resume) sandboxv1.SandboxService_AttachClient {
	w.t.Helper()
	call, err := w.sandboxes.Attach(ctx)
	if err == nil {
		err = call.Send(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Resume_{Resume: r}})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return call
}

// receive reads until the output is want, or to the end for "".
func receive(t *testing.T, call sandboxv1.SandboxService_AttachClient, want string) (output string, exit int32) {
	t.Helper()
	var received strings.Builder
	for want == "" || received.String() != want {
		m, err := call.Recv()
		if err != nil {
			t.Fatalf("%v, having heard %q", err, received.String())
		}
		received.Write(m.Data)
		if m.ExitCode != nil {
			return received.String(), *m.ExitCode
		}
	}
	return received.String(), -1
}
