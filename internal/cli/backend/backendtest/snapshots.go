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

	argv := []string{"/bin/sh", "-c", "echo two >old; echo x >new"}
	live, err := b.Enter(ctx, sb, backend.EnterOptions{Checkpoint: argv})
	if err != nil {
		t.Fatal(err)
	}
	sh(t, live, argv[2], "")
	_, err = b.Restore(ctx, sb.Ref(), "good", false, nil)
	wantKind(t, "a restore while it runs", err, errdefs.Precondition)
	if err := live.Leave(); err != nil {
		t.Error(err)
	}
	tree, err := b.SnapshotTree(ctx, sb.Ref())
	if err != nil || len(tree.Nodes) != 2 || tree.Present != 1 || tree.Nodes[1].Parent != 1 || tree.Nodes[1].Depth != 1 || tree.Nodes[1].Reason != snapshot.BeforeCommand || !strings.HasSuffix(tree.Nodes[1].Command, argv[2]) {
		t.Fatalf("SnapshotTree = %+v, %v", tree, err)
	}

	wantStates(t, s, sb.Ref()+"@good", sb.Ref(), "/new", "/old")
	wantStates(t, s, sb.Ref()+"@source", sb.Ref()+"@s1", "/gone", "/old")
	_, err = b.Compare(ctx, sb.Ref()+"@good", sb.Ref(), []vpath.Path{"/kept"}, nil)
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

	wantKind(t, "a removal with an unknown snapshot", b.RemoveSnapshots(ctx, sb.Ref(), []string{"good", "s9"}), errdefs.NotFound)
	if _, err := s.changes(t, sb).Discard(ctx, nil, false); err != nil {
		t.Error(err)
	}
	_, err = b.Remove(ctx, sb.Ref(), backend.RemoveEmpty)
	wantKind(t, "the removal of a sandbox with snapshots", err, errdefs.Precondition)
	if err := b.RemoveSnapshots(ctx, sb.Ref(), []string{"good", "s2", "s3"}); err != nil {
		t.Error(err)
	}
	if tree, err := b.SnapshotTree(ctx, sb.Ref()); err != nil || len(tree.Nodes) != 0 {
		t.Errorf("after the removal: %+v, %v", tree, err)
	}
	if _, err := b.Restore(ctx, sb.Ref(), "good", true, nil); s.IsServer {
		if _, refused := errors.AsType[*backend.LocalOnlyError](err); !refused {
			t.Errorf("--rebase: %v", err)
		}
	}
}

// wantStates compares two states.
func wantStates(t *testing.T, s Suite, earlier, later string, want ...vpath.Path) {
	t.Helper()
	r, err := s.Backend.Compare(t.Context(), earlier, later, nil, nil)
	if err != nil {
		t.Errorf("%s and %s: %v", earlier, later, err)
		return
	}
	defer r.Close()
	var got []vpath.Path
	for _, f := range r.Files() {
		got = append(got, f.Path)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%s and %s differ at %v, want %v", earlier, later, got, want)
	}
}

func testForks(t *testing.T, s Suite) {
	ctx, b := t.Context(), s.Backend
	sb, dir := s.create(t, "forked")
	s.change(t, sb, "echo one >old")
	if _, err := b.TakeSnapshot(ctx, sb.Ref(), "early", nil); err != nil {
		t.Fatal(err)
	}
	s.change(t, sb, "echo two >old")
	fork := func(ref string, rules *backend.Rules, names ...string) []backend.Sandbox {
		t.Helper()
		forks, err := b.Fork(ctx, sb.Ref(), ref, names, rules, false, nil)
		for _, f := range forks {
			t.Cleanup(func() {
				if _, err := b.Remove(context.WithoutCancel(ctx), f.Ref(), backend.RemoveForced); err != nil {
					t.Error(err)
				}
			})
		}
		if err != nil || len(forks) != len(names) {
			t.Fatalf("Fork = %v, %v", forks, err)
		}
		return forks
	}
	now := fork("", nil, "fork-a", "fork-b")
	early := fork("early", nil, "fork-early")[0]
	hiding := backend.Rules{Note: "test", Rules: append(slices.Clone(writable.Rules), policy.Rule{Pattern: "/old", Permission: policy.None, Priority: 10, Source: "test"})}
	narrow := fork("", &hiding, "fork-narrow")[0]
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
