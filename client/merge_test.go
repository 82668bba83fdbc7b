//go:build linux

package client_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/client"
)

func TestApplyMergesTexts(t *testing.T) {
	text := "1\n2\n3\n4\n5\n6\n7\n8\n"
	box, dir := linked(t, open(t), "full-access", map[string]string{"f": text})
	edit := func(old, line string) {
		t.Helper()
		content, err := os.ReadFile(dir + "/f")
		if err == nil {
			err = os.WriteFile(dir+"/f", []byte(strings.Replace(string(content), old+"\n", line+"\n", 1)), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	run(t, box, "sed -i 's/^8$/eight/' f")
	edit("1", "one")
	done, err := box.Apply(t.Context())
	if err != nil || len(done.Results) != 1 || done.Results[0].Outcome != client.OutcomeApplied || !done.Results[0].Merged || done.Results[0].Conflicts != 0 {
		t.Fatalf("%+v, %v, want f merged", done, err)
	}
	run(t, box, "sed -i 's/^4$/by the sandbox/' f")
	edit("4", "by a person")
	if _, err := box.Apply(t.Context()); !errors.Is(err, client.ErrConflict) {
		t.Errorf("%v, want a conflict", err)
	}
	would, err := box.ApplyDryRun(t.Context())
	if err != nil || would.Results[0].Kind != client.ConflictText {
		t.Errorf("%+v, %v, want a conflict in the text", would, err)
	}
	if _, err := box.ApplyResolving(t.Context(), "both", ""); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("an unknown resolution: %v", err)
	}
	done, err = box.ApplyResolving(t.Context(), client.ResolveTheirs, "")
	if err != nil || !done.Results[0].Merged || done.Results[0].Conflicts != 1 {
		t.Errorf("%+v, %v, want one conflict resolved", done, err)
	}
	want := "one\n2\n3\nby the sandbox\n5\n6\n7\neight\n"
	if got, err := os.ReadFile(dir + "/f"); err != nil || string(got) != want {
		t.Errorf("f is %q, %v, want %q", got, err, want)
	}
}

func TestAForkIsMerged(t *testing.T) {
	box, dir := linked(t, open(t), "full-access", map[string]string{"f": "1\n2\n3\n4\n5\n"})
	ctx := t.Context()
	forks, err := box.Fork(ctx, []string{"merge-test"}, client.ForkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fork := forks[0]
	defer fork.Close()
	if err := fork.Start(ctx); err != nil {
		t.Fatal(err)
	}
	run(t, fork, "sed -i 's/5/five/' f; echo theirs >new")
	run(t, box, "sed -i 's/1/one/' f; echo ours >new")
	if _, err := box.Merge(ctx, fork, client.MergeOptions{Paths: []string{"f"}}); !errors.Is(err, client.ErrAlreadyRunning) {
		t.Errorf("a merge into a sandbox that runs: %v", err)
	}
	would, err := box.Merge(ctx, fork, client.MergeOptions{DryRun: true})
	if err != nil || would.ConflictCount != 1 || would.Conflicts[0].Path != "new" || would.Conflicts[0].Kind != client.ConflictBothAdded || would.Conflicts[0].Reason == "" {
		t.Errorf("%+v, %v, want a conflict at new", would, err)
	}
	if err := box.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	told := (*client.Error)(nil)
	if _, err := box.Merge(ctx, fork, client.MergeOptions{}); !errors.Is(err, client.ErrConflict) || !errors.As(err, &told) || len(told.Conflicts) != 1 || told.Conflicts[0] != "new" {
		t.Errorf("%v, want a conflict at new", err)
	}
	if _, err := box.Merge(ctx, fork, client.MergeOptions{Resolve: "both"}); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("an unknown resolution: %v", err)
	}
	if none, err := box.Merge(ctx, fork, client.MergeOptions{Paths: []string{}}); err != nil || none.Kept != nil {
		t.Errorf("a merge of no path: %+v, %v", none, err)
	}
	done, err := box.Merge(ctx, fork, client.MergeOptions{Resolve: client.ResolveTheirs})
	if err != nil || done.ChangedCount != 2 || done.Kept == nil || done.Kept.Reason != client.SnapshotMerge || done.Kept.Command != "merge-test" {
		t.Fatalf("%+v, %v, want two changes", done, err)
	}
	want := []client.MergedPath{{Path: "f", Status: client.ChangeModified, Merged: true}, {Path: "new", Status: client.ChangeModified, Merged: true, Resolved: client.ConflictBothAdded}}
	if !slices.Equal(done.Paths, want) {
		t.Errorf("%+v, want %+v", done.Paths, want)
	}
	if err := box.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if got := string(run(t, box, "cat f new").Stdout); got != "one\n2\n3\n4\nfive\ntheirs\n" {
		t.Errorf("the sandbox shows %q", got)
	}
	if got, err := os.ReadFile(dir + "/f"); err != nil || string(got) != "1\n2\n3\n4\n5\n" {
		t.Errorf("on the host: %q, %v", got, err)
	}
}
