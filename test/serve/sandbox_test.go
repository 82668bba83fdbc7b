package serve_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

func TestTheLifeOfASandbox(t *testing.T) {
	s := start(t)
	ctx := t.Context()
	cb := s.codebase(map[string]string{"README.md": "hello\n", "src/main.go": "package main\n", ".env": "SECRET\n"})
	rules := []*sandboxv1.PermissionRule{
		{Pattern: "**/*", Permission: sandboxv1.Permission_PERMISSION_READ},
		{Pattern: "/src", Type: sandboxv1.PatternType_PATTERN_TYPE_DIRECTORY, Permission: sandboxv1.Permission_PERMISSION_WRITE, Priority: 5},
		{Pattern: "**/.env*", Type: sandboxv1.PatternType_PATTERN_TYPE_GLOB, Priority: 100},
	}
	made, err := s.sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{
		CodebaseId: cb, Permissions: rules, Labels: map[string]string{"a": "1", "b": "2"}, ExpiresIn: durationpb.New(3600e9),
	})
	if err != nil {
		t.Fatal(err)
	}
	id := made.Id
	if diff := cmp.Diff(rules, made.Permissions, protocmp.Transform()); diff != "" {
		t.Errorf("permissions (-sent +got):\n%s", diff)
	}
	if made.Status != sandboxv1.SandboxStatus_SANDBOX_STATUS_PENDING || made.StartedAt != nil || made.ExpiresAt == nil || made.Labels["b"] != "2" {
		t.Errorf("made = %v", made)
	}
	_, err = s.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: id, Command: "true"})
	wantCode(t, err, codes.FailedPrecondition, "sandbox is not running")
	_, err = s.sandboxes.StopSandbox(ctx, &sandboxv1.StopSandboxRequest{SandboxId: id})
	wantCode(t, err, codes.FailedPrecondition, "sandbox is not running")

	started, err := s.sandboxes.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxId: id})
	if must(t, started, err).Status != sandboxv1.SandboxStatus_SANDBOX_STATUS_RUNNING || started.StartedAt == nil {
		t.Errorf("started = %v", started)
	}
	_, err = s.sandboxes.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxId: id})
	wantCode(t, err, codes.FailedPrecondition, "sandbox is already running")
	if got := s.exec(id, "pwd; cat README.md; ls -A"); got != "/workspace\nhello\nREADME.md\nsrc\n" {
		t.Errorf("inside: %q", got)
	}

	stopped, err := s.sandboxes.StopSandbox(ctx, &sandboxv1.StopSandboxRequest{SandboxId: id})
	if must(t, stopped, err).Status != sandboxv1.SandboxStatus_SANDBOX_STATUS_STOPPED || stopped.StoppedAt == nil {
		t.Errorf("stopped = %v", stopped)
	}
	_, err = s.codebases.DeleteCodebase(ctx, &sandboxv1.DeleteCodebaseRequest{CodebaseId: cb})
	wantCode(t, err, codes.FailedPrecondition, "sandboxes: destroy them first")
	_, err = s.sandboxes.DestroySandbox(ctx, &sandboxv1.DestroySandboxRequest{SandboxId: id})
	must(t, 0, err)
	_, err = s.sandboxes.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{SandboxId: id})
	wantCode(t, err, codes.NotFound, id)
	_, err = s.codebases.DeleteCodebase(ctx, &sandboxv1.DeleteCodebaseRequest{CodebaseId: cb})
	must(t, 0, err)
	_, err = s.codebases.GetCodebase(ctx, &sandboxv1.GetCodebaseRequest{CodebaseId: cb})
	wantCode(t, err, codes.NotFound, cb)
}
