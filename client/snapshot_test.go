//go:build linux

package client_test

import (
	"errors"
	"os"
	"testing"

	"github.com/agentfense/agentfense/client"
)

func TestSnapshotsRestoreAndForks(t *testing.T) {
	box, dir := linked(t, open(t), "full-access", map[string]string{"f": "zero\n"})
	ctx := t.Context()
	run(t, box, "echo one >f")
	first, err := box.Snapshot(ctx, "good")
	if err != nil || first.Name != "s1" || first.Label != "good" || first.CreatedAt.IsZero() {
		t.Fatalf("%+v, %v", first, err)
	}
	if _, err := box.Snapshot(ctx, "good"); !errors.Is(err, client.ErrExists) {
		t.Errorf("a label in use: %v", err)
	}
	if _, err := box.Run(ctx, "echo two >f", client.WithCheckpoint()); err != nil {
		t.Fatal(err)
	}
	list, err := box.Snapshots(ctx)
	if err != nil || len(list.Snapshots) != 2 || list.Present != "s1" || list.ForkOf != nil {
		t.Fatalf("%+v, %v", list, err)
	}
	if s := list.Snapshots[1]; s.Parent != "s1" || s.Reason != client.SnapshotCheckpoint || s.Command != "echo two >f" {
		t.Errorf("checkpoint: %+v", s)
	}
	diff, err := box.Compare(ctx, box.At("good"), box.At(""))
	if err != nil || len(diff) != 1 || diff[0].Path != "f" || diff[0].ID != "" || len(diff[0].Patch) == 0 {
		t.Errorf("compare: %+v, %v", diff, err)
	}

	if _, err := box.Restore(ctx, "good"); !errors.Is(err, client.ErrAlreadyRunning) {
		t.Errorf("restore while it runs: %v", err)
	}
	if err := box.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	r, err := box.Restore(ctx, "@{1}")
	if err != nil || r.Snapshot.Name != "s2" || r.Kept == nil || r.Kept.Reason != client.SnapshotRestore {
		t.Errorf("restored: %+v, %v", r, err)
	}
	if err := box.DeleteSnapshot(ctx, "nothing"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("deletion of nothing: %v", err)
	}

	narrow := []client.PermissionRule{{Pattern: "**", Permission: client.Read}}
	forks, err := box.Fork(ctx, []string{"snapshot-test-a", "snapshot-test-b"}, client.ForkOptions{Permissions: narrow})
	if err != nil || len(forks) != 2 {
		t.Fatalf("forks: %v, %v", forks, err)
	}
	for _, fork := range forks {
		defer fork.Close()
	}
	if err := forks[0].Start(ctx); err != nil {
		t.Fatal(err)
	}
	if got := string(run(t, forks[0], "cat f; echo x >g || true").Stdout); got != "one\n" {
		t.Errorf("the fork shows %q", got)
	}
	wide := []client.PermissionRule{{Pattern: "**", Permission: client.Write}}
	if _, err := forks[0].Fork(ctx, []string{"snapshot-test-c"}, client.ForkOptions{Permissions: wide, AllowWider: true}); !errors.Is(err, client.ErrDenied) {
		t.Errorf("wider rules: %v", err)
	}
	if err := box.DeleteSnapshot(ctx, "good"); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(dir + "/f"); err != nil || string(got) != "zero\n" {
		t.Errorf("on the host: %q, %v", got, err)
	}
}
