package backendtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func testSnapshots(t *testing.T, s Suite) {
	ctx, b := t.Context(), s.Backend
	sb, dir := s.create(t, "states")
	s.change(t, sb, "echo one >old; rm gone")
	first, err := b.TakeSnapshot(ctx, sb.Ref(), "good", nil)
	if err != nil || first.Ref() != "s1" || first.Label != "good" || first.CreatedAt.IsZero() {
		t.Fatalf("TakeSnapshot = %+v, %v", first, err)
	}
	_, err = b.TakeSnapshot(ctx, sb.Ref(), "good", nil)
	wantKind(t, "a label in use", err, errdefs.Exists)
	s.checkpoint(t, sb)

	wantStates(t, s, sb.Ref()+"@good", sb.Ref(), "/new", "/old")
	wantStates(t, s, sb.Ref()+"@source", sb.Ref()+"@s1", "/gone", "/old")
	_, err = b.Compare(ctx, sb.Ref()+"@good", sb.Ref(), "", []vpath.Path{"/kept"}, nil)
	wantKind(t, "a path at which the states are equal", err, errdefs.NotFound)

	_, err = b.Restore(ctx, sb.Ref(), "s9", false, nil)
	wantKind(t, "a restore of an unknown snapshot", err, errdefs.NotFound)
	r, err := b.Restore(ctx, sb.Ref(), "@{1}", false, nil)
	if err != nil || r.To.Ref() != "s2" || r.Kept.Ref() != "s3" {
		t.Errorf("Restore = %+v, %v", r, err)
	}
	if found := listed(t, s.changes(t, sb)); len(found) != 2 {
		t.Errorf("after the restore: %v", found)
	}
	if got := read(t, dir, "old"); got != files["old"] {
		t.Errorf("the source has %q", got)
	}
	_, err = b.Restore(ctx, sb.Ref(), "good", true, nil)
	if _, refused := errors.AsType[*backend.LocalOnlyError](err); refused != s.IsServer {
		t.Errorf("--rebase: %v", err)
	}
	s.removeSnapshots(t, sb)
}

// checkpoint runs a command with a snapshot before it in a sandbox that has s1.
func (s Suite) checkpoint(t *testing.T, sb backend.Sandbox) {
	t.Helper()
	argv := []string{"/bin/sh", "-c", "echo two >old; echo x >new"}
	live, err := s.Backend.Enter(t.Context(), sb, backend.EnterOptions{Checkpoint: argv})
	if err != nil {
		t.Fatal(err)
	}
	sh(t, live, argv[2], "")
	_, err = s.Backend.Restore(t.Context(), sb.Ref(), "good", false, nil)
	wantKind(t, "a restore while it runs", err, errdefs.Precondition)
	if err := live.Leave(); err != nil {
		t.Error(err)
	}
	tree, err := s.Backend.SnapshotTree(t.Context(), sb.Ref())
	if err != nil || len(tree.Nodes) != 2 || tree.Present != 1 {
		t.Fatalf("SnapshotTree = %+v, %v", tree, err)
	}
	if n := tree.Nodes[1]; n.Parent != 1 || n.Depth != 1 || n.Reason != snapshot.BeforeCommand || !strings.HasSuffix(n.Command, argv[2]) {
		t.Errorf("the checkpoint is %+v", n)
	}
}

// removeSnapshots removes all snapshots of a sandbox, and its changes.
func (s Suite) removeSnapshots(t *testing.T, sb backend.Sandbox) {
	t.Helper()
	ctx, b := t.Context(), s.Backend
	wantKind(t, "a removal with an unknown snapshot", b.RemoveSnapshots(ctx, sb.Ref(), []string{"good", "s999"}), errdefs.NotFound)
	if _, err := s.changes(t, sb).Discard(ctx, nil, false); err != nil {
		t.Error(err)
	}
	_, err := b.Remove(ctx, sb.Ref(), backend.RemoveEmpty)
	wantKind(t, "the removal of a sandbox with snapshots", err, errdefs.Precondition)
	tree, err := b.SnapshotTree(ctx, sb.Ref())
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, n := range tree.Nodes {
		all = append(all, n.Ref())
	}
	if err := b.RemoveSnapshots(ctx, sb.Ref(), all); err != nil {
		t.Error(err)
	}
	if tree, err := b.SnapshotTree(ctx, sb.Ref()); err != nil || len(tree.Nodes) != 0 {
		t.Errorf("after the removal: %+v, %v", tree, err)
	}
}

// wantStates compares two states.
func wantStates(t *testing.T, s Suite, earlier, later string, want ...vpath.Path) {
	t.Helper()
	r, err := s.Backend.Compare(t.Context(), earlier, later, "", nil, nil)
	if err != nil {
		t.Errorf("%s and %s: %v", earlier, later, err)
		return
	}
	defer func() { _ = r.Close() }() // it only read
	var got []vpath.Path
	for _, f := range r.Files() {
		got = append(got, f.Path)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%s and %s differ at %v, want %v", earlier, later, got, want)
	}
}

// fork makes forks, and removes them after the test.
func (s Suite) fork(t *testing.T, sb backend.Sandbox, ref string, rules *backend.Rules, names ...string) []backend.Sandbox {
	t.Helper()
	forks, err := s.Backend.Fork(t.Context(), sb.Ref(), ref, names, rules, false, nil)
	for _, f := range forks {
		t.Cleanup(func() {
			if _, err := s.Backend.Remove(context.WithoutCancel(t.Context()), f.Ref(), backend.RemoveForced); err != nil {
				t.Error(err)
			}
		})
	}
	if err != nil || len(forks) != len(names) {
		t.Fatalf("Fork = %v, %v", forks, err)
	}
	return forks
}

func testForks(t *testing.T, s Suite) {
	ctx, b := t.Context(), s.Backend
	sb, dir := s.create(t, "forked")
	s.change(t, sb, "echo one >old")
	if _, err := b.TakeSnapshot(ctx, sb.Ref(), "early", nil); err != nil {
		t.Fatal(err)
	}
	s.change(t, sb, "echo two >old")
	now := s.fork(t, sb, "", nil, "fork-a", "fork-b")
	early := s.fork(t, sb, "early", nil, "fork-early")[0]
	hiding := backend.Rules{Note: "test", Rules: append(slices.Clone(writable.Rules), policy.Rule{Pattern: "/old", Permission: policy.None, Priority: 10, Source: "test"})}
	narrow := s.fork(t, sb, "", &hiding, "fork-narrow")[0]
	_, err := b.Fork(ctx, sb.Ref(), "", []string{"fork-a"}, nil, false, nil)
	wantKind(t, "a name in use", err, errdefs.Exists)
	_, err = b.Fork(ctx, sb.Ref(), "s9", []string{"fork-c"}, nil, false, nil)
	wantKind(t, "a fork of an unknown snapshot", err, errdefs.NotFound)

	wantStates(t, s, early.Ref(), now[0].Ref(), "/old")
	wantStates(t, s, now[0].Ref(), now[1].Ref())
	live := s.enter(t, narrow)
	if exit, _, _ := sh(t, live, "test ! -e old", ""); exit.Code != 0 {
		t.Error("the narrower fork sees what its rules hide")
	}
	if err := live.Leave(); err != nil {
		t.Error(err)
	}
	if tree, err := b.SnapshotTree(ctx, early.Ref()); err != nil || len(tree.Nodes) != 0 || tree.Origin == nil || tree.Origin.ID != sb.Record.ID || tree.Origin.Snapshot != 1 {
		t.Errorf("the fork's tree: %+v, %v", tree, err)
	}

	c := s.changes(t, now[0])
	if result, err := c.Apply(ctx, backend.ApplyOptions{}); err != nil || len(result.Paths) != 1 {
		t.Errorf("Apply = %+v, %v", result, err)
	}
	if got := read(t, dir, "old"); got != "two\n" {
		t.Errorf("the source has %q", got)
	}
}
