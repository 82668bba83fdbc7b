package service_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// A client that brings changes into the directory that it uploaded does so by file: the server
// merges texts of its codebase only if the request says how.
func TestTextsOfAnUploadedCodebaseAreMergedIfAsked(t *testing.T) {
	w := newWorld(t, manual)
	ctx := t.Context()
	cb := w.codebase(ctx, "me")
	if err := w.upload(ctx, cb, "text", "1\n2\n3\n4\n5\n6\n"); err != nil {
		t.Fatal(err)
	}
	x, y := w.sandbox(ctx, cb), w.sandbox(ctx, cb)
	w.exec(ctx, x, "sed -i '1s/.*/one/; 6s/.*/x/' text")
	w.exec(ctx, y, "sed -i '3s/.*/three/; 6s/.*/y/' text; echo new > new")
	if _, err := w.sandboxes.Apply(ctx, &sandboxv1.ApplyRequest{SandboxId: x}); err != nil {
		t.Fatal(err)
	}
	r := &sandboxv1.ApplyRequest{SandboxId: y}
	_, err := w.sandboxes.Apply(ctx, r)
	wantCode(t, "an apply that does not say how", err, codes.FailedPrecondition)
	if got, err := w.download(ctx, cb, "text"); err != nil || got != "one\n2\n3\n4\n5\nx\n" {
		t.Errorf("after a conflict the codebase has %q, %v", got, err)
	}
	r.OnConflict = sandboxv1.ConflictResolution_CONFLICT_RESOLUTION_THEIRS
	done, err := w.sandboxes.Apply(ctx, r)
	if err != nil || done.AppliedCount != 2 {
		t.Fatalf("merged: %v, %v", done, err)
	}
	if got, err := w.download(ctx, cb, "text"); err != nil || got != "one\n2\nthree\n4\n5\ny\n" {
		t.Errorf("the codebase has %q, %v", got, err)
	}
	if page, err := w.sandboxes.Diff(ctx, &sandboxv1.DiffRequest{SandboxId: y}); err != nil || len(page.Files) != 0 {
		t.Errorf("afterwards there are changes: %v, %v", page, err)
	}
}
