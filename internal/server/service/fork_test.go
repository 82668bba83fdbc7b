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

func (w *world) fork(ctx context.Context, r *sandboxv1.ForkSandboxRequest) []*sandboxv1.Sandbox {
	w.t.Helper()
	answer, err := w.snapshots.ForkSandbox(ctx, r)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer.Sandboxes
}

func TestForksBeginWithAState(t *testing.T) {
	w := newWorld(t, manual)
	ctx := w.as("alice", store.AllScopes)
	cb := w.codebase(ctx, "alice")
	sb := w.sandbox(ctx, cb)
	w.exec(ctx, sb, "echo one > f")
	w.snapshot(ctx, sb, "early")
	w.exec(ctx, sb, "echo two > f")
	forks := w.fork(ctx, &sandboxv1.ForkSandboxRequest{SandboxId: sb, Names: []string{"a", "b"}})
	early := w.fork(ctx, &sandboxv1.ForkSandboxRequest{SandboxId: sb, Snapshot: "early", Names: []string{"c"}})
	if len(forks) != 2 || forks[0].Name != "a" || forks[1].Name != "b" || forks[0].OwnerId != "alice" || forks[0].CodebaseId != cb || forks[0].Status != sandboxv1.SandboxStatus_SANDBOX_STATUS_PENDING || forks[0].StartedAt != nil {
		t.Fatalf("forks: %v", forks)
	}
	if _, err := w.sandboxes.DestroySandbox(ctx, &sandboxv1.DestroySandboxRequest{SandboxId: sb}); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{forks[0].Id: "two\n", forks[1].Id: "two\n", early[0].Id: "one\n"} {
		w.start(ctx, id)
		if got := w.exec(ctx, id, "cat f").Stdout; got != want {
			t.Errorf("%s shows %q, want %q", id, got, want)
		}
	}
	list, err := w.snapshots.ListSnapshots(ctx, &sandboxv1.ListSnapshotsRequest{SandboxId: early[0].Id})
	if err != nil || len(list.Snapshots) != 0 || list.ForkOf.GetSandboxId() != sb || list.ForkOf.Snapshot != "s1" {
		t.Errorf("the fork has %v, %v", list, err)
	}
}

// Forks are made all or not at all.
func TestForksCountAsSandboxes(t *testing.T) {
	w := newWorld(t, func(c *config.Config) { c.Sandbox.MaxPerUser = 3 })
	ctx := w.as("alice", store.AllScopes)
	sb := w.sandbox(ctx, w.codebase(ctx, "alice"))
	count := func() int {
		t.Helper()
		all, err := w.sandboxes.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return len(all.Sandboxes)
	}
	_, err := w.snapshots.ForkSandbox(ctx, &sandboxv1.ForkSandboxRequest{SandboxId: sb, Names: []string{"a", "b", "c"}})
	wantCode(t, "more forks than there is room for", err, codes.ResourceExhausted)
	if n := count(); n != 1 {
		t.Errorf("there are %d sandboxes", n)
	}
	w.fork(ctx, &sandboxv1.ForkSandboxRequest{SandboxId: sb, Names: []string{"a"}})
	_, err = w.snapshots.ForkSandbox(ctx, &sandboxv1.ForkSandboxRequest{SandboxId: sb, Names: []string{"a"}})
	wantCode(t, "a name in use", err, codes.AlreadyExists)
	_, err = w.snapshots.ForkSandbox(ctx, &sandboxv1.ForkSandboxRequest{SandboxId: sb, Names: []string{"../x"}})
	wantCode(t, "an invalid name", err, codes.InvalidArgument)
	_, err = w.snapshots.ForkSandbox(ctx, &sandboxv1.ForkSandboxRequest{SandboxId: sb})
	wantCode(t, "no name", err, codes.InvalidArgument)
	if n := count(); n != 2 {
		t.Errorf("there are %d sandboxes", n)
	}
}

func TestAForkIsNeverWiderUnasked(t *testing.T) {
	rules := func(patterns ...string) *sandboxv1.ForkRules {
		r := &sandboxv1.ForkRules{}
		for _, p := range patterns {
			pattern, word, _ := strings.Cut(p, "=")
			r.Permissions = append(r.Permissions, &sandboxv1.PermissionRule{Pattern: pattern, Permission: sandboxv1.Permission(sandboxv1.Permission_value["PERMISSION_"+word])})
		}
		return r
	}
	for _, permitted := range []bool{false, true} {
		w := newWorld(t, func(c *config.Config) { c.Sandbox.WiderForks = permitted })
		ctx := w.as("alice", store.AllScopes)
		made, err := w.sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{CodebaseId: w.codebase(ctx, "alice"), Permissions: rules("**=READ", "/src/**=WRITE").Permissions})
		if err != nil {
			t.Fatal(err)
		}
		narrow := w.fork(ctx, &sandboxv1.ForkSandboxRequest{SandboxId: made.Id, Names: []string{"narrow"}, Rules: rules("**=READ", "/src/keys/**=NONE")})
		if p := narrow[0].Permissions; len(p) != 2 || p[1].Pattern != "/src/keys/**" {
			t.Errorf("the narrower fork has %v", p)
		}
		hidden := w.fork(ctx, &sandboxv1.ForkSandboxRequest{SandboxId: made.Id, Names: []string{"hidden"}, Rules: rules()})
		if p := hidden[0].Permissions; len(p) != 0 {
			t.Errorf("the fork that sees nothing has %v", p)
		}
		wider := &sandboxv1.ForkSandboxRequest{SandboxId: made.Id, Names: []string{"wide"}, Rules: rules("**=READ", "/docs/**=WRITE")}
		_, err = w.snapshots.ForkSandbox(ctx, wider)
		wantCode(t, "wider rules without the flag", err, codes.PermissionDenied)
		wider.AllowWider = true
		_, err = w.snapshots.ForkSandbox(ctx, wider)
		want := codes.OK
		if !permitted {
			want = codes.PermissionDenied
		}
		wantCode(t, "wider rules with the flag", err, want)
	}
}

// What a caller without the scope apply has changed reaches the codebase only by an apply, also
// after a restore and in a fork.
func TestHeldChangesStayHeldInSnapshotsAndForks(t *testing.T) {
	w := newWorld(t, nil)
	ctx := w.as("alice", store.AllScopes)
	cb := w.codebase(ctx, "alice")
	sb := w.sandbox(ctx, cb)
	w.exec(w.as("alice", store.ScopeExec), sb, "echo theirs > f")
	w.snapshot(ctx, sb, "held")
	fork := w.fork(ctx, &sandboxv1.ForkSandboxRequest{SandboxId: sb, Names: []string{"now"}})[0]
	later := w.fork(ctx, &sandboxv1.ForkSandboxRequest{SandboxId: sb, Snapshot: "held", Names: []string{"later"}})[0]
	w.stop(ctx, sb)
	if _, err := w.sandboxes.Discard(ctx, &sandboxv1.DiscardRequest{SandboxId: sb}); err != nil {
		t.Fatal(err)
	}
	if got, err := w.sandboxes.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{SandboxId: sb}); err != nil || got.SyncHeld {
		t.Fatalf("after the discard: %v, %v", got, err)
	}
	w.restore(ctx, sb, "held")
	for _, id := range []string{sb, fork.Id, later.Id} {
		w.start(ctx, id)
		w.exec(ctx, id, "true")
		w.stop(ctx, id)
		if got, err := w.sandboxes.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{SandboxId: id}); err != nil || !got.SyncHeld {
			t.Errorf("%s: %v, %v", id, got, err)
		}
		if got, err := w.download(ctx, cb, "f"); err == nil {
			t.Errorf("%s: the codebase has %q", id, got)
		}
	}
}
