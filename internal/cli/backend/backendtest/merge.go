package backendtest

import (
	"slices"
	"testing"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/merge"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
)

func testMerge(t *testing.T, s Suite) {
	ctx, b := t.Context(), s.Backend
	sb, dir := s.create(t, "merged")
	forks := s.fork(t, sb, "", nil, "merge-a", "merge-b")
	a, other := forks[0], forks[1]
	s.change(t, a, "echo a >old; echo a >new")
	s.change(t, other, "rm old")
	s.change(t, sb, "echo mine >mine")
	if _, err := b.TakeSnapshot(ctx, a.Ref(), "early", nil); err != nil {
		t.Fatal(err)
	}
	s.change(t, a, "echo later >later")
	into := func(from backend.Sandbox, o backend.MergeOptions) (merge.Result, error) {
		o.From, o.Into = from.Ref(), sb.Ref()
		return b.Merge(ctx, o, nil)
	}

	planned, err := into(a, backend.MergeOptions{DryRun: true})
	if err != nil || planned.Changed() != 3 || planned.Kept.Number != 0 {
		t.Errorf("what would be merged: %+v, %v", planned, err)
	}
	r, err := into(a, backend.MergeOptions{Snapshot: "early"})
	want := []merge.Path{{Path: "/new", Status: changes.Added}, {Path: "/old", Status: changes.Modified}}
	if err != nil || !slices.Equal(r.Paths, want) || r.Kept.Ref() != "s1" {
		t.Errorf("Merge = %+v, %v, want %v", r, err, want)
	}
	tree, err := b.SnapshotTree(ctx, sb.Ref())
	if err != nil || len(tree.Nodes) != 1 || tree.Nodes[0].Reason != snapshot.BeforeMerge || tree.Nodes[0].Command != "merge-a@early" {
		t.Errorf("SnapshotTree = %+v, %v", tree, err)
	}
	if got := read(t, dir, "old"); got != files["old"] {
		t.Errorf("the source has %q", got)
	}

	mergeConflict(t, func(o backend.MergeOptions) (merge.Result, error) { return into(other, o) })
	s.refusedMerges(t, sb, a)
	s.mergedUnseen(t, sb)
}

// mergeConflict merges a fork that deleted what the other sandbox has changed.
func mergeConflict(t *testing.T, into func(backend.MergeOptions) (merge.Result, error)) {
	t.Helper()
	r, err := into(backend.MergeOptions{})
	if err != nil || len(r.Conflicts) != 1 || r.Conflicts[0].Kind != conflict.DeleteModify || r.Conflicts[0].Path != "/old" || r.Kept.Number != 0 {
		t.Errorf("a conflict: %+v, %v", r, err)
	}
	r, err = into(backend.MergeOptions{Resolve: conflict.Theirs})
	if err != nil || len(r.Paths) != 1 || r.Paths[0] != (merge.Path{Path: "/old", Status: changes.Deleted, Resolved: conflict.DeleteModify}) {
		t.Errorf("a conflict that is resolved: %+v, %v", r, err)
	}
}

// refusedMerges are merges that change nothing.
func (s Suite) refusedMerges(t *testing.T, sb, fork backend.Sandbox) {
	t.Helper()
	foreign, _ := s.create(t, "foreign")
	for _, tt := range []struct {
		name string
		o    backend.MergeOptions
		want errdefs.Kind
	}{
		{"of a sandbox into itself", backend.MergeOptions{From: sb.Ref(), Into: sb.Ref()}, errdefs.Invalid},
		{"of two sources", backend.MergeOptions{From: foreign.Ref(), Into: sb.Ref()}, errdefs.Precondition},
		{"of an unknown snapshot", backend.MergeOptions{From: fork.Ref(), Into: sb.Ref(), Snapshot: "s9"}, errdefs.NotFound},
		{"of a path without a change", backend.MergeOptions{From: fork.Ref(), Into: sb.Ref(), Paths: []vpath.Path{"/kept"}}, errdefs.NotFound},
		{"of an unknown sandbox", backend.MergeOptions{From: "nobody", Into: sb.Ref()}, errdefs.NotFound},
	} {
		_, err := s.Backend.Merge(t.Context(), tt.o, nil)
		wantKind(t, "a merge "+tt.name, err, tt.want)
	}
	live := s.enter(t, sb)
	_, err := s.Backend.Merge(t.Context(), backend.MergeOptions{From: fork.Ref(), Into: sb.Ref()}, nil)
	wantKind(t, "a merge into a sandbox that runs", err, errdefs.Precondition)
	if err := live.Leave(); err != nil {
		t.Error(err)
	}
}

// mergedUnseen checks that an apply leaves out what came with a merge until it was shown.
func (s Suite) mergedUnseen(t *testing.T, sb backend.Sandbox) {
	t.Helper()
	ctx := t.Context()
	result, err := s.changes(t, sb).Apply(ctx, backend.ApplyOptions{Take: backend.TakeShown, DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	taken := map[vpath.Path]bool{}
	for _, p := range result.Paths {
		taken[p.Path] = p.Outcome == "applied"
	}
	if !taken["/mine"] || taken["/new"] || taken["/old"] {
		t.Errorf("an apply without a look takes %v", taken)
	}
}
