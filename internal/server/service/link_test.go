package service_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/server/store"
)

func TestALinkedDirectoryChangesByApplyAlone(t *testing.T) {
	w := newWorld(t, nil)
	ctx := t.Context()
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	request := &sandboxv1.LinkCodebaseRequest{Name: "host", OwnerId: "me", Path: dir}
	_, err := w.codebases.LinkCodebase(w.as("me", store.AllScopes), request)
	wantCode(t, "a token bound to an owner", err, codes.PermissionDenied)
	_, err = w.codebases.LinkCodebase(ctx, &sandboxv1.LinkCodebaseRequest{Name: "x", OwnerId: "me", Path: w.home.Dir()})
	wantCode(t, "the state directory", err, codes.InvalidArgument)
	made, err := w.codebases.LinkCodebase(ctx, request)
	if err != nil || !made.Linked || made.CreatedAt == nil {
		t.Fatalf("%v, %v", made, err)
	}
	wantCode(t, "an upload", w.upload(ctx, made.Id, "g", "x"), codes.FailedPrecondition)
	sb := w.sandbox(ctx, made.Id)
	r, err := w.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: sb, Command: "cat f; printf new > f; cat f"})
	if err != nil || r.Stdout != "oldnew" {
		t.Errorf("inside: %v, %v", r, err)
	}
	if got, err := os.ReadFile(file); string(got) != "old" || err != nil {
		t.Errorf("after the command the host has %q, %v", got, err)
	}
	if _, err := w.sandboxes.Apply(ctx, &sandboxv1.ApplyRequest{SandboxId: sb}); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(file); string(got) != "new" || err != nil {
		t.Errorf("after apply the host has %q, %v", got, err)
	}
	if _, err := w.sandboxes.DestroySandbox(ctx, &sandboxv1.DestroySandboxRequest{SandboxId: sb}); err != nil {
		t.Error(err)
	}
	if _, err := w.codebases.DeleteCodebase(ctx, &sandboxv1.DeleteCodebaseRequest{CodebaseId: made.Id}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("deleting the codebase took the directory: %v", err)
	}
}

// Whoever works in a linked directory is not told where on the host it is, also
// when it is not there any more.
func TestALinkedDirectorysPathIsNotTold(t *testing.T) {
	w := newWorld(t, nil)
	dir := filepath.Join(t.TempDir(), "secret")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	made, err := w.codebases.LinkCodebase(t.Context(), &sandboxv1.LinkCodebaseRequest{Name: "host", OwnerId: "me", Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	me := w.as("me", store.AllScopes)
	sb, err := w.sandboxes.CreateSandbox(me, &sandboxv1.CreateSandboxRequest{CodebaseId: made.Id})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+".gone"); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"CreateSandbox": func() error {
			_, err := w.sandboxes.CreateSandbox(me, &sandboxv1.CreateSandboxRequest{CodebaseId: made.Id})
			return err
		},
		"StartSandbox": func() error {
			_, err := w.sandboxes.StartSandbox(me, &sandboxv1.StartSandboxRequest{SandboxId: sb.Id})
			return err
		},
	} {
		if err := call(); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What it has changed is seen without its directory.
	if list, err := w.sandboxes.ListView(me, &sandboxv1.ListViewRequest{SandboxId: sb.Id}); err != nil || strings.Contains(list.String(), "secret") {
		t.Errorf("ListView: %v, %v", list, err)
	}
	if diff, err := w.sandboxes.Diff(me, &sandboxv1.DiffRequest{SandboxId: sb.Id}); err != nil || strings.Contains(diff.String(), "secret") {
		t.Errorf("Diff: %v, %v", diff, err)
	}
	log, err := w.sandboxes.Audit(me, &sandboxv1.AuditRequest{SandboxId: sb.Id})
	if err != nil {
		t.Fatal(err)
	}
	created, err := log.Recv()
	if err != nil || !strings.Contains(created.Record, `"source":"`+made.Id+`"`) || strings.Contains(created.Record, "secret") {
		t.Errorf("the log tells of %v, %v", created, err)
	}
	got, err := w.sandboxes.GetSandbox(me, &sandboxv1.GetSandboxRequest{SandboxId: sb.Id})
	if err != nil || got.StatusReason == "" || strings.Contains(got.StatusReason, "secret") {
		t.Errorf("GetSandbox: %v, %v", got, err)
	}
}

// A path is escaped as that of a file is.
func TestADirectoryWhoseNameIsNoUTF8IsLinked(t *testing.T) {
	w := newWorld(t, nil)
	ctx := t.Context()
	dir := filepath.Join(t.TempDir(), "n\xffon")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("here"), 0o644); err != nil {
		t.Fatal(err)
	}
	made, err := w.codebases.LinkCodebase(ctx, &sandboxv1.LinkCodebaseRequest{Name: "n", OwnerId: "me", Path: vpath.EncodeText(dir)})
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: w.sandbox(ctx, made.Id), Command: "cat f; printf new >f"})
	if err != nil || r.Stdout != "here" {
		t.Errorf("inside: %v, %v", r, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	_, err = w.sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{CodebaseId: made.Id})
	if err == nil || strings.Contains(err.Error(), "xffon") || !strings.Contains(err.Error(), `"(codebase)": no such file`) {
		t.Errorf("of one that is gone: %v", err)
	}
}
