package service_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/server/store"
)

// linked makes a codebase of dir.
func (w *world) linked(owner, dir string) string {
	w.t.Helper()
	made, err := w.codebases.LinkCodebase(w.t.Context(), &sandboxv1.LinkCodebaseRequest{Name: "host", OwnerId: owner, Path: dir})
	if err != nil {
		w.t.Fatal(err)
	}
	return made.Id
}

// run runs a command in a sandbox and stops it.
func (w *world) run(ctx context.Context, sb, command string) {
	w.t.Helper()
	_, err := w.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: sb, Command: command})
	if err == nil {
		_, err = w.sandboxes.StopSandbox(ctx, &sandboxv1.StopSandboxRequest{SandboxId: sb})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func contentOf(t *testing.T, elements ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAnApplyIsUndoneByItsOwnerAlone(t *testing.T) {
	w := newWorld(t, nil)
	dir := tree(t, "f=old", "g=old")
	me, other := w.as("me", store.AllScopes), w.as("other", store.AllScopes)
	cb := w.linked("me", dir)
	again := w.linked("other", dir)
	sb := w.sandbox(me, cb)
	w.run(me, sb, "printf new > f; printf new > g")
	applied, err := w.sandboxes.Apply(me, &sandboxv1.ApplyRequest{SandboxId: sb})
	if err != nil || applied.TransactionId == "" {
		t.Fatalf("%v, %v", applied, err)
	}
	tx := &sandboxv1.UndoRequest{TransactionId: applied.TransactionId}

	for what, call := range map[string]func() error{
		"undo by id":      func() error { _, err := w.history.Undo(other, tx); return err },
		"undo by sandbox": func() error { _, err := w.history.Undo(other, &sandboxv1.UndoRequest{SandboxId: sb}); return err },
		"redo":            func() error { _, err := w.history.Redo(other, tx); return err },
		"list by sandbox": func() error {
			_, err := w.history.ListTransactions(other, &sandboxv1.ListTransactionsRequest{SandboxId: sb})
			return err
		},
		"list by codebase": func() error {
			_, err := w.history.ListTransactions(other, &sandboxv1.ListTransactionsRequest{CodebaseId: cb})
			return err
		},
	} {
		wantCode(t, "another owner: "+what, call(), codes.NotFound)
	}
	list, err := w.history.ListTransactions(other, &sandboxv1.ListTransactionsRequest{CodebaseId: again})
	if err != nil || len(list.Transactions) != 0 {
		t.Errorf("another codebase of the same directory has %v, %v", list, err)
	}
	_, err = w.history.Undo(w.as("me", store.AllScopes&^store.ScopeApply), tx)
	wantCode(t, "without the scope apply", err, codes.PermissionDenied)
	if got := contentOf(t, dir, "f"); got != "new" {
		t.Fatalf("a refused call changed f: %q", got)
	}

	// A conflict is an error that lists the path, and a dry run answers with it.
	if err := os.WriteFile(filepath.Join(dir, "g"), []byte("by hand"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = w.history.Undo(me, tx)
	wantCode(t, "a path that has changed since", err, codes.FailedPrecondition)
	details := status.Convert(err).Details()
	if failure, is := details[0].(*errdetails.PreconditionFailure); !is || len(failure.Violations) != 1 || failure.Violations[0].Subject != "g" {
		t.Errorf("details: %v", details)
	}
	plan, err := w.history.Undo(me, &sandboxv1.UndoRequest{TransactionId: tx.TransactionId, DryRun: true})
	if err != nil || plan.ConflictCount != 1 || plan.PathCount != 2 || plan.Paths[0].Path != "g" || plan.Paths[0].Conflict == "" || plan.TransactionId != "" {
		t.Errorf("a dry run: %v, %v", plan, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "g"), []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}

	undone, err := w.history.Undo(me, tx)
	if err != nil || !undone.GivenBack || contentOf(t, dir, "f") != "old" {
		t.Fatalf("%v, %v", undone, err)
	}
	if changes, err := w.sandboxes.Diff(me, &sandboxv1.DiffRequest{SandboxId: sb}); err != nil || len(changes.Files) != 2 {
		t.Errorf("the sandbox has %v, %v", changes, err)
	}

	// The owner of the codebase can do it without the sandbox.
	if _, err := w.sandboxes.DestroySandbox(me, &sandboxv1.DestroySandboxRequest{SandboxId: sb}); err != nil {
		t.Fatal(err)
	}
	_, err = w.history.Redo(other, tx)
	wantCode(t, "another owner, of a destroyed sandbox", err, codes.NotFound)
	if _, err := w.history.Redo(me, tx); err != nil || contentOf(t, dir, "f") != "new" {
		t.Errorf("redo: %v", err)
	}

	// Pages.
	first, err := w.history.ListTransactions(me, &sandboxv1.ListTransactionsRequest{CodebaseId: cb, PageSize: 2})
	if err != nil || len(first.Transactions) != 2 || first.Transactions[0].Kind != sandboxv1.TransactionKind_TRANSACTION_KIND_REDO {
		t.Fatalf("%v, %v", first, err)
	}
	rest, err := w.history.ListTransactions(me, &sandboxv1.ListTransactionsRequest{CodebaseId: cb, PageToken: first.NextPageToken})
	if err != nil || len(rest.Transactions) != 1 || rest.Transactions[0].Id != tx.TransactionId || rest.NextPageToken != "" {
		t.Errorf("%v, %v", rest, err)
	}
	_, err = w.history.ListTransactions(me, &sandboxv1.ListTransactionsRequest{CodebaseId: cb, PageToken: "x"})
	wantCode(t, "a malformed token", err, codes.InvalidArgument)
}

// A mount whose source may no longer be written is not changed by an undo either.
func TestAnUndoAsksForTheRootOfAMount(t *testing.T) {
	dir := tree(t, "data/f=old")
	roots := []config.MountRoot{{Path: dir + "/data", Writable: true}}
	w := newWorld(t, func(c *config.Config) { c.Mounts.Roots = roots })
	ctx := t.Context()
	r := mountOf(w.codebase(ctx, "me"), &sandboxv1.Mount{Source: dir + "/data", Place: "/data", Mode: "cow"})
	made, err := w.sandboxes.CreateSandbox(ctx, r)
	if err == nil {
		_, err = w.sandboxes.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxId: made.Id})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.run(ctx, made.Id, "printf new > /data/f")
	_, err = w.history.Undo(ctx, &sandboxv1.UndoRequest{SandboxId: made.Id})
	wantCode(t, "an uploaded codebase, and nothing applied to the mount", err, codes.FailedPrecondition)
	applied, err := w.sandboxes.Apply(ctx, &sandboxv1.ApplyRequest{SandboxId: made.Id, Mount: "data"})
	if err != nil || contentOf(t, dir, "data/f") != "new" {
		t.Fatalf("%v, %v", applied, err)
	}
	roots[0].Writable = false
	_, err = w.history.Undo(ctx, &sandboxv1.UndoRequest{TransactionId: applied.TransactionId})
	wantCode(t, "a root that is not writable any more", err, codes.PermissionDenied)
	roots[0].Writable = true
	if _, err := w.history.Undo(ctx, &sandboxv1.UndoRequest{SandboxId: made.Id}); err != nil || contentOf(t, dir, "data/f") != "old" {
		t.Errorf("undo: %v", err)
	}

	// Without the sandbox nothing tells who owns what was applied to a mount.
	applied, err = w.sandboxes.Apply(ctx, &sandboxv1.ApplyRequest{SandboxId: made.Id, Mount: "data"})
	if err == nil {
		_, err = w.sandboxes.DestroySandbox(ctx, &sandboxv1.DestroySandboxRequest{SandboxId: made.Id})
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.history.Undo(ctx, &sandboxv1.UndoRequest{TransactionId: applied.TransactionId})
	wantCode(t, "of a destroyed sandbox", err, codes.NotFound)
	if got := contentOf(t, dir, "data/f"); got != "new" {
		t.Errorf("a refused undo changed f: %q", got)
	}
}
