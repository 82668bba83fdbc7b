package service_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

func TestAudit(t *testing.T) {
	w := newWorld(t, nil)
	ctx := t.Context()
	cb := w.codebase(ctx, "me")
	sb := w.sandbox(ctx, cb)
	exec := func(command string) {
		t.Helper()
		if _, err := w.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: sb, Command: command}); err != nil {
			t.Fatal(err)
		}
	}
	exec("echo first > f")
	session, err := w.sandboxes.CreateSession(ctx, &sandboxv1.CreateSessionRequest{SandboxId: sb})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.sandboxes.DestroySession(ctx, &sandboxv1.DestroySessionRequest{SessionId: session.Id}); err != nil {
		t.Fatal(err)
	}
	stream, err := w.sandboxes.Audit(ctx, &sandboxv1.AuditRequest{SandboxId: sb})
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	var last uint64
	for {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		kinds, last = append(kinds, e.Event), e.Seq
		if want := `"event":"` + e.Event + `","codebase_id":"` + cb + `","user_id":"me"`; !strings.Contains(e.Record, want) {
			t.Errorf("record %q", e.Record)
		}
	}
	for _, want := range []string{"sandbox_created", "sandbox_started", "file_changed", "command_executed", "applied", "session_created", "session_closed"} {
		if !slices.Contains(kinds, want) {
			t.Errorf("events %q, want %s among them", kinds, want)
		}
	}

	stream, err = w.sandboxes.Audit(ctx, &sandboxv1.AuditRequest{SandboxId: sb, Events: []string{"session_closed"}})
	if err != nil {
		t.Fatal(err)
	}
	e, err := stream.Recv()
	if err != nil || !strings.Contains(e.Record, session.Id) || !strings.Contains(e.Record, `"duration_ms":`) {
		t.Errorf("of sessions that were closed: %v, %v", e, err)
	}
	if e, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("of sessions that were closed, a second: %v, %v", e, err)
	}

	stream, err = w.sandboxes.Audit(ctx, &sandboxv1.AuditRequest{SandboxId: sb, Follow: true, AfterSeq: last, Events: []string{"command_executed", "sandbox_destroyed"}})
	if err != nil {
		t.Fatal(err)
	}
	exec("true second")
	if e, err := stream.Recv(); err != nil || e.Event != "command_executed" || !strings.Contains(e.Record, "true second") {
		t.Errorf("followed %v, %v", e, err)
	}
	if _, err := w.sandboxes.DestroySandbox(ctx, &sandboxv1.DestroySandboxRequest{SandboxId: sb}); err != nil {
		t.Fatal(err)
	}
	if e, err := stream.Recv(); err != nil || e.Event != "sandbox_destroyed" {
		t.Errorf("followed %v, %v", e, err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}

	bad, err := w.sandboxes.Audit(ctx, &sandboxv1.AuditRequest{SandboxId: w.sandbox(ctx, w.codebase(ctx, "me")), Events: []string{"nonsense"}})
	if err == nil {
		_, err = bad.Recv()
	}
	wantCode(t, "an unknown kind", err, codes.InvalidArgument)
}
