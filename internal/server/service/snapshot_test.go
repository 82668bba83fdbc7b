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

func manual(c *config.Config) { c.Sandbox.Sync = config.SyncManual }

func (w *world) start(ctx context.Context, id string) {
	w.t.Helper()
	if _, err := w.sandboxes.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxId: id}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) stop(ctx context.Context, id string) {
	w.t.Helper()
	if _, err := w.sandboxes.StopSandbox(ctx, &sandboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) snapshot(ctx context.Context, id, label string) *sandboxv1.Snapshot {
	w.t.Helper()
	made, err := w.snapshots.CreateSnapshot(ctx, &sandboxv1.CreateSnapshotRequest{SandboxId: id, Label: label})
	if err != nil {
		w.t.Fatal(err)
	}
	return made
}

func (w *world) restore(ctx context.Context, id, ref string) *sandboxv1.RestoreSnapshotResponse {
	w.t.Helper()
	r, err := w.snapshots.RestoreSnapshot(ctx, &sandboxv1.RestoreSnapshotRequest{SandboxId: id, Snapshot: ref})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func TestSnapshotsOfAServersSandbox(t *testing.T) {
	w := newWorld(t, manual)
	ctx := t.Context()
	sb := w.sandbox(ctx, w.codebase(ctx, "me"))
	w.exec(ctx, sb, "echo one > f")
	first := w.snapshot(ctx, sb, "good")
	if first.Name != "s1" || first.Label != "good" || first.CreatedAt == nil {
		t.Errorf("made %v", first)
	}
	_, err := w.snapshots.CreateSnapshot(ctx, &sandboxv1.CreateSnapshotRequest{SandboxId: sb, Label: "good"})
	wantCode(t, "a label in use", err, codes.AlreadyExists)
	_, err = w.snapshots.CreateSnapshot(ctx, &sandboxv1.CreateSnapshotRequest{SandboxId: sb, Label: "s7"})
	wantCode(t, "a label that looks like a name", err, codes.InvalidArgument)
	if _, err := w.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: sb, Command: "echo two > f", Checkpoint: true}); err != nil {
		t.Fatal(err)
	}
	list, err := w.snapshots.ListSnapshots(ctx, &sandboxv1.ListSnapshotsRequest{SandboxId: sb})
	if err != nil || len(list.Snapshots) != 2 || list.Present != "s1" || list.ForkOf != nil {
		t.Fatalf("list: %v, %v", list, err)
	}
	if s := list.Snapshots[1]; s.Name != "s2" || s.Parent != "s1" || s.Reason != sandboxv1.SnapshotReason_SNAPSHOT_REASON_CHECKPOINT || s.Command != "echo two > f" {
		t.Errorf("the checkpoint is %v", s)
	}

	_, err = w.snapshots.RestoreSnapshot(ctx, &sandboxv1.RestoreSnapshotRequest{SandboxId: sb, Snapshot: "@{1}"})
	wantCode(t, "restore while it runs", err, codes.FailedPrecondition)
	w.stop(ctx, sb)
	if r := w.restore(ctx, sb, "@{1}"); r.Snapshot.Name != "s2" || r.Kept.GetName() != "s3" || r.Kept.Reason != sandboxv1.SnapshotReason_SNAPSHOT_REASON_RESTORE {
		t.Errorf("restored %v", r)
	}
	_, err = w.snapshots.RestoreSnapshot(ctx, &sandboxv1.RestoreSnapshotRequest{SandboxId: sb, Snapshot: "s9"})
	wantCode(t, "restore of an unknown snapshot", err, codes.NotFound)
	w.start(ctx, sb)
	if got := w.exec(ctx, sb, "cat f").Stdout; got != "one\n" {
		t.Errorf("after the restore f is %q", got)
	}

	_, err = w.sandboxes.DestroySandbox(ctx, &sandboxv1.DestroySandboxRequest{SandboxId: sb, UnusedOnly: true})
	wantCode(t, "removal of an unused sandbox with changes", err, codes.FailedPrecondition)
	if _, err := w.sandboxes.Discard(ctx, &sandboxv1.DiscardRequest{SandboxId: sb}); err != nil {
		t.Fatal(err)
	}
	_, err = w.sandboxes.DestroySandbox(ctx, &sandboxv1.DestroySandboxRequest{SandboxId: sb, UnusedOnly: true})
	if wantCode(t, "removal of an unused sandbox with a snapshot", err, codes.FailedPrecondition); err != nil && !strings.Contains(err.Error(), "has snapshots") {
		t.Error(err)
	}
	if _, err := w.snapshots.DeleteSnapshot(ctx, &sandboxv1.DeleteSnapshotRequest{SandboxId: sb, Snapshot: "good"}); err != nil {
		t.Error(err)
	}
	_, err = w.snapshots.DeleteSnapshot(ctx, &sandboxv1.DeleteSnapshotRequest{SandboxId: sb, Snapshot: "good"})
	wantCode(t, "deletion of a snapshot that is gone", err, codes.NotFound)
}

// A checkpoint of a sandbox that does not run is no snapshot, and nothing has run.
func TestACheckpointNeedsARunningSandbox(t *testing.T) {
	w := newWorld(t, manual)
	ctx := t.Context()
	sb := w.sandbox(ctx, w.codebase(ctx, "me"))
	w.stop(ctx, sb)
	_, err := w.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: sb, Command: "true", Checkpoint: true})
	wantCode(t, "a checkpoint of a stopped sandbox", err, codes.FailedPrecondition)
	list, err := w.snapshots.ListSnapshots(ctx, &sandboxv1.ListSnapshotsRequest{SandboxId: sb})
	if err != nil || len(list.Snapshots) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}

func TestSnapshotsAreOfTheirOwner(t *testing.T) {
	w := newWorld(t, manual)
	alice, bob := w.as("alice", store.AllScopes), w.as("bob", store.AllScopes)
	cb := w.codebase(alice, "alice")
	sb, own := w.sandbox(alice, cb), w.sandbox(bob, w.codebase(bob, "bob"))
	w.snapshot(alice, sb, "")
	calls := map[string]func(context.Context) error{
		"CreateSnapshot": func(ctx context.Context) error {
			_, err := w.snapshots.CreateSnapshot(ctx, &sandboxv1.CreateSnapshotRequest{SandboxId: sb})
			return err
		},
		"ListSnapshots": func(ctx context.Context) error {
			_, err := w.snapshots.ListSnapshots(ctx, &sandboxv1.ListSnapshotsRequest{SandboxId: sb})
			return err
		},
		"DeleteSnapshot": func(ctx context.Context) error {
			_, err := w.snapshots.DeleteSnapshot(ctx, &sandboxv1.DeleteSnapshotRequest{SandboxId: sb, Snapshot: "s1"})
			return err
		},
		"RestoreSnapshot": func(ctx context.Context) error {
			_, err := w.snapshots.RestoreSnapshot(ctx, &sandboxv1.RestoreSnapshotRequest{SandboxId: sb, Snapshot: "s1"})
			return err
		},
		"ForkSandbox": func(ctx context.Context) error {
			_, err := w.snapshots.ForkSandbox(ctx, &sandboxv1.ForkSandboxRequest{SandboxId: sb, Names: []string{"stolen"}})
			return err
		},
		"MergeSandbox": func(ctx context.Context) error {
			_, err := w.snapshots.MergeSandbox(ctx, &sandboxv1.MergeSandboxRequest{SandboxId: sb, FromSandboxId: own})
			return err
		},
		"MergeSandbox from it": func(ctx context.Context) error {
			_, err := w.snapshots.MergeSandbox(ctx, &sandboxv1.MergeSandboxRequest{SandboxId: own, FromSandboxId: sb})
			return err
		},
		"CompareStates": func(ctx context.Context) error {
			_, err := w.snapshots.CompareStates(ctx, &sandboxv1.CompareStatesRequest{SandboxId: sb, FromState: "source"})
			return err
		},
		"CompareStates from it": func(ctx context.Context) error {
			_, err := w.snapshots.CompareStates(ctx, &sandboxv1.CompareStatesRequest{SandboxId: own, FromSandboxId: sb})
			return err
		},
	}
	needs := map[string]store.Scopes{
		"CreateSnapshot": store.ScopeExec, "ListSnapshots": store.ScopeRead, "CompareStates": store.ScopeRead,
		"DeleteSnapshot": store.ScopeApply, "RestoreSnapshot": store.ScopeApply, "ForkSandbox": store.ScopeManage,
		"MergeSandbox": store.ScopeApply,
	}
	lacking := map[store.Scopes]context.Context{}
	for _, need := range []store.Scopes{store.ScopeRead, store.ScopeExec, store.ScopeApply, store.ScopeManage} {
		lacking[need] = w.as("alice", store.AllScopes&^need)
	}
	for name, call := range calls {
		wantCode(t, name+" of another owner", call(bob), codes.NotFound)
		if need := needs[name]; need != 0 {
			wantCode(t, name+" without its scope", call(lacking[need]), codes.PermissionDenied)
		}
	}
}

func TestStatesAreCompared(t *testing.T) {
	w := newWorld(t, manual)
	ctx := t.Context()
	cb := w.codebase(ctx, "me")
	if err := w.upload(ctx, cb, "f", "old\n"); err != nil {
		t.Fatal(err)
	}
	x, y := w.sandbox(ctx, cb), w.sandbox(ctx, cb)
	w.exec(ctx, x, "echo new > f; echo 1 > a")
	w.snapshot(ctx, x, "")
	w.exec(ctx, x, "echo 1 > b")
	w.exec(ctx, y, "echo new > f; echo 2 > a")
	compare := func(r *sandboxv1.CompareStatesRequest) string {
		t.Helper()
		var all []string
		for {
			page, err := w.snapshots.CompareStates(ctx, r)
			if err != nil {
				t.Fatal(err)
			}
			if page.Digest != "" {
				t.Errorf("a comparison has the digest %s", page.Digest)
			}
			for _, f := range page.Files {
				if f.Id != "" || len(f.Hunks) > 0 {
					t.Errorf("%s has ids, which no apply takes", f.Path)
				}
				all = append(all, strings.TrimPrefix(f.Status.String(), "CHANGE_STATUS_")[:1]+" "+f.Path)
			}
			if r.PageToken = page.NextPageToken; r.PageToken == "" {
				return strings.Join(all, ", ")
			}
		}
	}
	for _, tt := range []struct {
		name string
		r    *sandboxv1.CompareStatesRequest
		want string
	}{
		{"the source with the present state", &sandboxv1.CompareStatesRequest{SandboxId: x, FromState: "source"}, "A a, A b, M f"},
		{"page by page", &sandboxv1.CompareStatesRequest{SandboxId: x, FromState: "source", PageSize: 1}, "A a, A b, M f"},
		{"a snapshot with the present state", &sandboxv1.CompareStatesRequest{SandboxId: x, FromState: "s1"}, "A b"},
		{"back to a snapshot", &sandboxv1.CompareStatesRequest{SandboxId: x, FromState: "now", State: "s1"}, "D b"},
		{"two sandboxes", &sandboxv1.CompareStatesRequest{FromSandboxId: x, SandboxId: y}, "M a, D b"},
		{"a part", &sandboxv1.CompareStatesRequest{FromSandboxId: x, SandboxId: y, Paths: []string{"b"}}, "D b"},
		{"a state with itself", &sandboxv1.CompareStatesRequest{SandboxId: x}, ""},
	} {
		if got := compare(tt.r); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	page, err := w.snapshots.CompareStates(ctx, &sandboxv1.CompareStatesRequest{SandboxId: x, FromState: "source", Paths: []string{"f"}})
	if err != nil || len(page.Files) != 1 || !strings.Contains(page.Files[0].Patch, "-old\n+new\n") {
		t.Errorf("patch: %v, %v", page, err)
	}
	_, err = w.snapshots.CompareStates(ctx, &sandboxv1.CompareStatesRequest{SandboxId: x, State: "s9"})
	wantCode(t, "an unknown snapshot", err, codes.NotFound)
	other := w.sandbox(ctx, w.codebase(ctx, "me"))
	_, err = w.snapshots.CompareStates(ctx, &sandboxv1.CompareStatesRequest{SandboxId: x, FromSandboxId: other})
	wantCode(t, "two codebases", err, codes.FailedPrecondition)
}

// Snapshots and restores in turn do not let a sandbox store more than its limit.
func TestSnapshotsCountTowardsTheDiskLimit(t *testing.T) {
	w := newWorld(t, manual)
	ctx := t.Context()
	made, err := w.sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{
		CodebaseId: w.codebase(ctx, "me"), Permissions: everything, Resources: &sandboxv1.ResourceLimits{DiskBytes: 8 << 20},
	})
	if err != nil {
		t.Fatal(err)
	}
	sb := made.Id
	empty := w.snapshot(ctx, sb, "empty").Name
	stored := 0
	for ; stored < 5; stored++ {
		w.start(ctx, sb)
		done, err := w.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: sb, Command: "head -c 3M /dev/zero > f"})
		if err != nil {
			t.Fatal(err)
		}
		if done.ExitCode != 0 {
			break
		}
		w.snapshot(ctx, sb, "")
		w.stop(ctx, sb)
		w.restore(ctx, sb, empty)
	}
	if stored != 2 {
		t.Errorf("3 MiB fit %d times into 8 MiB, want 2", stored)
	}
	list, err := w.snapshots.ListSnapshots(ctx, &sandboxv1.ListSnapshotsRequest{SandboxId: sb})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list.Snapshots[1:] {
		if _, err := w.snapshots.DeleteSnapshot(ctx, &sandboxv1.DeleteSnapshotRequest{SandboxId: sb, Snapshot: s.Name}); err != nil {
			t.Fatal(err)
		}
	}
	w.exec(ctx, sb, "head -c 3M /dev/zero > f")
}
