package service_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/server/store"
)

func TestApplyAndDiscardByHand(t *testing.T) {
	w := newWorld(t, func(c *config.Config) { c.Sandbox.Sync = config.SyncManual })
	ctx := t.Context()
	cb := w.codebase(ctx, "me")
	if err := w.upload(ctx, cb, "f", "old"); err != nil {
		t.Fatal(err)
	}
	sb, other := w.sandbox(ctx, cb), w.sandbox(ctx, cb)
	exec := func(id, command string) string {
		t.Helper()
		r, err := w.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: id, Command: command})
		if err != nil {
			t.Fatal(err)
		}
		return r.Stdout
	}
	exec(other, "cat f")
	exec(sb, "printf new > f; printf x > g; printf y > h")
	planned, err := w.sandboxes.Apply(ctx, &sandboxv1.ApplyRequest{SandboxId: sb, DryRun: true})
	if err != nil || planned.AppliedCount != 3 || planned.ResultCount != 3 {
		t.Errorf("dry run: %v, %v", planned, err)
	}
	dropped, err := w.sandboxes.Discard(ctx, &sandboxv1.DiscardRequest{SandboxId: sb, Paths: []string{"/g"}})
	if err != nil || len(dropped.Paths) != 1 || dropped.Paths[0] != "g" {
		t.Errorf("discard: %v, %v", dropped, err)
	}
	applied, err := w.sandboxes.Apply(ctx, &sandboxv1.ApplyRequest{SandboxId: sb, Paths: []string{"f"}})
	if err != nil || len(applied.Results) != 1 || applied.Results[0].Outcome != sandboxv1.Outcome_OUTCOME_APPLIED || applied.Results[0].Status != sandboxv1.ChangeStatus_CHANGE_STATUS_MODIFIED {
		t.Errorf("apply: %v, %v", applied, err)
	}
	if got := exec(other, "cat f; ls"); got != "newf\n" {
		t.Errorf("the other sandbox shows %q", got)
	}
	if got := exec(sb, "ls"); got != "f\nh\n" {
		t.Errorf("the sandbox shows %q", got)
	}
	_, err = w.sandboxes.Apply(ctx, &sandboxv1.ApplyRequest{SandboxId: sb, Paths: []string{"f"}})
	wantCode(t, "apply where nothing changed", err, codes.NotFound)
	_, err = w.sandboxes.Apply(ctx, &sandboxv1.ApplyRequest{SandboxId: sb, Paths: []string{"../f"}})
	wantCode(t, "apply of a path that leads out", err, codes.InvalidArgument)
	for name, call := range map[string]func(paths ...string) error{
		"apply": func(paths ...string) error {
			_, err := w.sandboxes.Apply(ctx, &sandboxv1.ApplyRequest{SandboxId: sb, Paths: paths})
			return err
		},
		"discard": func(paths ...string) error {
			_, err := w.sandboxes.Discard(ctx, &sandboxv1.DiscardRequest{SandboxId: sb, Paths: paths})
			return err
		},
		"diff": func(paths ...string) error {
			_, err := w.sandboxes.Diff(ctx, &sandboxv1.DiffRequest{SandboxId: sb, Paths: paths})
			return err
		},
	} {
		err := call("h", "")
		wantCode(t, name+" of an empty path", err, codes.InvalidArgument)
		if err == nil || !strings.Contains(err.Error(), "paths[1]: empty path: leave it out") {
			t.Errorf("%s of an empty path: %v", name, err)
		}
	}
	whole, err := w.sandboxes.Diff(ctx, &sandboxv1.DiffRequest{SandboxId: sb, Paths: []string{"/"}})
	if err != nil || len(whole.Files) != 1 || whole.Files[0].Path != "h" {
		t.Errorf("diff of the root: %v, %v", whole, err)
	}

	if err := w.upload(ctx, cb, "h", "theirs"); err != nil {
		t.Fatal(err)
	}
	_, err = w.sandboxes.Apply(ctx, &sandboxv1.ApplyRequest{SandboxId: sb})
	wantCode(t, "apply in conflict", err, codes.FailedPrecondition)
	planned, err = w.sandboxes.Apply(ctx, &sandboxv1.ApplyRequest{SandboxId: sb, DryRun: true})
	if err != nil || len(planned.Results) != 1 || planned.Results[0].Outcome != sandboxv1.Outcome_OUTCOME_CONFLICT {
		t.Errorf("dry run in conflict: %v, %v", planned, err)
	}
}

func TestThePolicyOfALiveSandboxChanges(t *testing.T) {
	w := newWorld(t, nil)
	ctx := t.Context()
	cb := w.codebase(ctx, "me")
	if err := w.upload(ctx, cb, "secret", "x"); err != nil {
		t.Fatal(err)
	}
	sb := w.sandbox(ctx, cb)
	exec := func(command string) string {
		t.Helper()
		r, err := w.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: sb, Command: command})
		if err != nil {
			t.Fatal(err)
		}
		return r.Stdout
	}
	if got := exec("cat secret"); got != "x" {
		t.Errorf("before: %q", got)
	}
	rules := []*sandboxv1.PermissionRule{
		{Pattern: "**/*", Permission: sandboxv1.Permission_PERMISSION_READ},
		{Pattern: "/secret", Type: sandboxv1.PatternType_PATTERN_TYPE_FILE},
	}
	got, err := w.sandboxes.SetPolicy(ctx, &sandboxv1.SetPolicyRequest{SandboxId: sb, Permissions: rules})
	if err != nil || len(got.Permissions) != 2 || got.Permissions[1].Pattern != "/secret" {
		t.Fatalf("SetPolicy = %v, %v", got, err)
	}
	if got := exec("cat secret 2>&1; ls -A; touch new || true"); got != "cat: secret: No such file or directory\n" {
		t.Errorf("after: %q", got)
	}
	explained, err := w.sandboxes.ExplainPolicy(ctx, &sandboxv1.ExplainPolicyRequest{SandboxId: sb, Path: "secret"})
	if err != nil || explained.Permission != sandboxv1.Permission_PERMISSION_NONE || explained.RuleIndex != 1 || explained.Rule.GetPattern() != "/secret" {
		t.Errorf("explained %v, %v", explained, err)
	}
	_, err = w.sandboxes.SetPolicy(ctx, &sandboxv1.SetPolicyRequest{SandboxId: sb, Permissions: []*sandboxv1.PermissionRule{{Pattern: "[x"}}})
	wantCode(t, "a malformed rule", err, codes.InvalidArgument)
	if got := exec("ls -A"); got != "" {
		t.Errorf("after a refused change: %q", got)
	}
	if _, err := w.sandboxes.SetPolicy(ctx, &sandboxv1.SetPolicyRequest{SandboxId: sb}); err != nil {
		t.Error(err)
	}
}

// A token that may apply, but neither read nor manage, is not told the rules.
func TestARefusalTellsNoRuleToOneWhoMayNotKnowThePolicy(t *testing.T) {
	w := newWorld(t, func(c *config.Config) { c.Sandbox.Sync = config.SyncManual })
	ctx := w.as("alice", store.AllScopes)
	sb := w.sandbox(ctx, w.codebase(ctx, "alice"))
	if _, err := w.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: sb, Command: "echo x > f"}); err != nil {
		t.Fatal(err)
	}
	rules := []*sandboxv1.PermissionRule{{Pattern: "?", Permission: sandboxv1.Permission_PERMISSION_VIEW}}
	if _, err := w.sandboxes.SetPolicy(ctx, &sandboxv1.SetPolicyRequest{SandboxId: sb, Permissions: rules}); err != nil {
		t.Fatal(err)
	}
	reason := func(ctx context.Context) string {
		t.Helper()
		planned, err := w.sandboxes.Apply(ctx, &sandboxv1.ApplyRequest{SandboxId: sb, DryRun: true})
		if err != nil || len(planned.Results) != 1 || planned.Results[0].Outcome != sandboxv1.Outcome_OUTCOME_REFUSED {
			t.Fatalf("dry run: %v, %v", planned, err)
		}
		return planned.Results[0].Reason
	}
	if got := reason(w.as("alice", store.ScopeApply|store.ScopeRead)); !strings.Contains(got, "?") {
		t.Errorf("a reader is told %q, without the rule", got)
	}
	if got := reason(w.as("alice", store.ScopeApply)); got != "the policy does not let the sandbox write there" {
		t.Errorf("who may only apply is told %q", got)
	}
}
