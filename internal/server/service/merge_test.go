package service_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/server/store"
)

// merged returns what a merge does: "A new, M text*". The star means that both sides have changed
// it.
func (w *world) merged(ctx context.Context, r *sandboxv1.MergeSandboxRequest) (string, *sandboxv1.MergeSandboxResponse) {
	w.t.Helper()
	m, err := w.snapshots.MergeSandbox(ctx, r)
	if err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for _, p := range m.Paths {
		text := strings.TrimPrefix(p.Status.String(), "CHANGE_STATUS_")[:1] + " " + p.Path
		if p.Merged {
			text += "*"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", "), m
}

// The sandbox that gets the changes is stopped, and the other one runs.
func TestAForkIsMerged(t *testing.T) {
	w := newWorld(t, manual)
	ctx := w.as("alice", store.AllScopes)
	cb := w.codebase(ctx, "alice")
	if err := w.upload(ctx, cb, "text", "1\n2\n3\n4\n5\n"); err != nil {
		t.Fatal(err)
	}
	into := w.sandbox(ctx, cb)
	fork := w.fork(ctx, &sandboxv1.ForkSandboxRequest{SandboxId: into, Names: []string{"fork"}})[0].Id
	w.start(ctx, fork)
	w.exec(ctx, into, "sed -i s/1/one/ text")
	w.exec(ctx, fork, "sed -i s/5/five/ text; echo x > new")
	r := &sandboxv1.MergeSandboxRequest{SandboxId: into, FromSandboxId: fork}
	_, err := w.snapshots.MergeSandbox(ctx, r)
	wantCode(t, "a merge into a sandbox that runs", err, codes.FailedPrecondition)
	r.DryRun = true
	if got, m := w.merged(ctx, r); got != "A new, M text*" || m.Kept != nil || m.ChangedCount != 2 {
		t.Errorf("would merge %s, %v", got, m)
	}
	w.stop(ctx, into)
	r.DryRun = false
	got, m := w.merged(ctx, r)
	if got != "A new, M text*" || m.PathCount != 2 || m.Kept.GetName() != "s1" || m.Kept.Reason != sandboxv1.SnapshotReason_SNAPSHOT_REASON_MERGE || m.Kept.Command != "fork" {
		t.Errorf("merged %s, %v", got, m)
	}
	if got, m := w.merged(ctx, r); got != "" || m.Kept != nil {
		t.Errorf("merged again %s, %v", got, m)
	}
	if got, err := w.download(ctx, cb, "text"); err != nil || got != "1\n2\n3\n4\n5\n" {
		t.Errorf("the codebase has %q, %v", got, err)
	}
	w.start(ctx, into)
	if got := w.exec(ctx, into, "cat text new").Stdout; got != "one\n2\n3\n4\nfive\nx\n" {
		t.Errorf("the sandbox shows %q", got)
	}
	w.stop(ctx, into)
	if w.restore(ctx, into, "@{1}").Snapshot.Name != "s1" {
		t.Error("the merge is not taken back")
	}

	_, err = w.snapshots.MergeSandbox(ctx, &sandboxv1.MergeSandboxRequest{SandboxId: into, FromSandboxId: into})
	wantCode(t, "a merge of a sandbox into itself", err, codes.InvalidArgument)
	_, err = w.snapshots.MergeSandbox(ctx, &sandboxv1.MergeSandboxRequest{SandboxId: into})
	wantCode(t, "a merge without the other sandbox", err, codes.InvalidArgument)
	_, err = w.snapshots.MergeSandbox(ctx, &sandboxv1.MergeSandboxRequest{SandboxId: into, FromSandboxId: fork, Snapshot: "s9"})
	wantCode(t, "a merge of an unknown snapshot", err, codes.NotFound)
	_, err = w.snapshots.MergeSandbox(ctx, &sandboxv1.MergeSandboxRequest{SandboxId: into, FromSandboxId: fork, Paths: []string{"other"}})
	wantCode(t, "a merge of a path without a change", err, codes.NotFound)
	other := w.sandbox(ctx, w.codebase(ctx, "alice"))
	_, err = w.snapshots.MergeSandbox(ctx, &sandboxv1.MergeSandboxRequest{SandboxId: into, FromSandboxId: other})
	wantCode(t, "a merge of two codebases", err, codes.FailedPrecondition)
}

// Conflicts are an error with their paths, and nothing is changed. A dry run lists them.
func TestConflictsOfAMergeAreNamed(t *testing.T) {
	w := newWorld(t, manual)
	ctx := w.as("alice", store.AllScopes)
	cb := w.codebase(ctx, "alice")
	from := w.sandbox(ctx, cb)
	into, err := w.sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Permissions: append(slices.Clone(everything),
		&sandboxv1.PermissionRule{Pattern: "/fixed", Permission: sandboxv1.Permission_PERMISSION_READ, Priority: 5})})
	if err != nil {
		t.Fatal(err)
	}
	w.start(ctx, into.Id)
	w.exec(ctx, into.Id, "echo ours > both")
	w.exec(ctx, from, "echo theirs > both; echo x > fixed; echo x > free")
	w.stop(ctx, into.Id)

	r := &sandboxv1.MergeSandboxRequest{SandboxId: into.Id, FromSandboxId: from}
	_, err = w.snapshots.MergeSandbox(ctx, r)
	wantCode(t, "a merge with conflicts", err, codes.FailedPrecondition)
	var named []string
	for _, d := range status.Convert(err).Details() {
		if failure, is := d.(*errdetails.PreconditionFailure); is {
			for _, v := range failure.Violations {
				named = append(named, v.Type+" "+v.Subject)
			}
		}
	}
	if want := []string{"conflict both", "refused fixed"}; !slices.Equal(named, want) {
		t.Errorf("the details name %q, want %q", named, want)
	}
	if list, err := w.snapshots.ListSnapshots(ctx, &sandboxv1.ListSnapshotsRequest{SandboxId: into.Id}); err != nil || len(list.Snapshots) != 0 {
		t.Errorf("after conflicts there are %v, %v", list, err)
	}
	r.DryRun = true
	for _, tt := range []struct {
		as     context.Context
		reason string
	}{
		{ctx, `the policy of ` + into.Name + ` says read (`},
		{w.as("alice", store.ScopeApply), "the policy does not let the sandbox write there"},
	} {
		_, m := w.merged(tt.as, r)
		if m.ConflictCount != 2 || m.Conflicts[0].Kind != sandboxv1.ConflictKind_CONFLICT_KIND_BOTH_ADDED || m.Conflicts[1].Kind != sandboxv1.ConflictKind_CONFLICT_KIND_REFUSED || len(m.Paths) != 0 {
			t.Errorf("a dry run answers %v", m)
		}
		if got := m.Conflicts[1].Reason; !strings.HasPrefix(got, tt.reason) {
			t.Errorf("the reason is %q, want %q", got, tt.reason)
		}
	}
	r.DryRun, r.OnConflict, r.Paths = false, sandboxv1.ConflictResolution_CONFLICT_RESOLUTION_OURS, []string{"both", "free"}
	got, m := w.merged(ctx, r)
	if got != "U both, A free" || m.ChangedCount != 1 || m.Paths[0].Resolved != sandboxv1.ConflictKind_CONFLICT_KIND_BOTH_ADDED {
		t.Errorf("merged %s, %v", got, m)
	}
	r.OnConflict = 99
	_, err = w.snapshots.MergeSandbox(ctx, r)
	wantCode(t, "an unknown resolution", err, codes.InvalidArgument)
}

// What a caller without the scope apply has changed reaches the codebase only by an apply, also
// after a merge. The state before the merge is not held.
func TestMergedChangesStayHeld(t *testing.T) {
	w := newWorld(t, nil)
	ctx := w.as("alice", store.AllScopes)
	cb := w.codebase(ctx, "alice")
	into, from := w.sandbox(ctx, cb), w.sandbox(ctx, cb)
	w.stop(ctx, into)
	w.exec(w.as("alice", store.ScopeExec), from, "echo theirs > f")
	w.merged(ctx, &sandboxv1.MergeSandboxRequest{SandboxId: into, FromSandboxId: from, DryRun: true})
	held := func() bool {
		t.Helper()
		got, err := w.sandboxes.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{SandboxId: into})
		if err != nil {
			t.Fatal(err)
		}
		return got.SyncHeld
	}
	if held() {
		t.Error("a dry run holds the sync")
	}
	if got, _ := w.merged(ctx, &sandboxv1.MergeSandboxRequest{SandboxId: into, FromSandboxId: from}); got != "A f" {
		t.Fatalf("merged %s", got)
	}
	w.start(ctx, into)
	w.exec(ctx, into, "true")
	w.stop(ctx, into)
	if !held() {
		t.Error("the sync is not held")
	}
	if got, err := w.download(ctx, cb, "f"); err == nil {
		t.Errorf("the codebase has %q", got)
	}
	if _, err := w.sandboxes.Apply(ctx, &sandboxv1.ApplyRequest{SandboxId: into}); err != nil {
		t.Fatal(err)
	}
	if got, err := w.download(ctx, cb, "f"); err != nil || got != "theirs\n" || held() {
		t.Errorf("after the apply the codebase has %q, %v", got, err)
	}
}

// Two calls that merge two sandboxes into each other do not wait for each other forever.
func TestMergesInBothDirectionsEnd(t *testing.T) {
	w := newWorld(t, manual)
	ctx := w.as("alice", store.AllScopes)
	cb := w.codebase(ctx, "alice")
	x, y := w.sandbox(ctx, cb), w.sandbox(ctx, cb)
	w.exec(ctx, x, "echo x > x")
	w.exec(ctx, y, "echo y > y")
	w.stop(ctx, x)
	w.stop(ctx, y)
	var all sync.WaitGroup
	for range 5 {
		for _, r := range []*sandboxv1.MergeSandboxRequest{{SandboxId: x, FromSandboxId: y}, {SandboxId: y, FromSandboxId: x}} {
			all.Go(func() {
				if _, err := w.snapshots.MergeSandbox(ctx, r); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	for _, id := range []string{x, y} {
		w.start(ctx, id)
		if got := w.exec(ctx, id, "cat x y").Stdout; got != "x\ny\n" {
			t.Errorf("%s shows %q", id, got)
		}
	}
}
