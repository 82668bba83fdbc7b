package service_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/server/store"
)

func TestAnOwnerSeesNothingOfAnother(t *testing.T) {
	w := newWorld(t, nil)
	alice, bob := w.as("alice", store.AllScopes), w.as("bob", store.AllScopes)
	cb := w.codebase(alice, "alice")
	if err := w.upload(alice, cb, "f", "alice's"); err != nil {
		t.Fatal(err)
	}
	sb := w.sandbox(alice, cb)
	session, err := w.sandboxes.CreateSession(alice, &sandboxv1.CreateSessionRequest{SandboxId: sb})
	if err != nil {
		t.Fatal(err)
	}

	_, err = w.codebases.CreateCodebase(bob, &sandboxv1.CreateCodebaseRequest{Name: "x", OwnerId: "alice"})
	wantCode(t, "CreateCodebase for another", err, codes.PermissionDenied)
	_, err = w.codebases.ListCodebases(bob, &sandboxv1.ListCodebasesRequest{OwnerId: "alice"})
	wantCode(t, "ListCodebases of another", err, codes.PermissionDenied)
	mine, err := w.codebases.ListCodebases(bob, &sandboxv1.ListCodebasesRequest{})
	if err != nil || len(mine.Codebases) != 0 {
		t.Errorf("bob's codebases %v, %v", mine, err)
	}
	boxes, err := w.sandboxes.ListSandboxes(bob, &sandboxv1.ListSandboxesRequest{})
	if err != nil || len(boxes.Sandboxes) != 0 {
		t.Errorf("bob's sandboxes %v, %v", boxes, err)
	}
	for what, call := range map[string]func() error{
		"GetCodebase": func() error {
			_, err := w.codebases.GetCodebase(bob, &sandboxv1.GetCodebaseRequest{CodebaseId: cb})
			return err
		},
		"DeleteCodebase": func() error {
			_, err := w.codebases.DeleteCodebase(bob, &sandboxv1.DeleteCodebaseRequest{CodebaseId: cb})
			return err
		},
		"ListFiles": func() error {
			_, err := w.codebases.ListFiles(bob, &sandboxv1.ListFilesRequest{CodebaseId: cb})
			return err
		},
		"UploadFiles":  func() error { return w.upload(bob, cb, "f", "bob's") },
		"DownloadFile": func() error { _, err := w.download(bob, cb, "f"); return err },
		"DeleteFile": func() error {
			_, err := w.codebases.DeleteFile(bob, &sandboxv1.DeleteFileRequest{CodebaseId: cb, FilePath: "f"})
			return err
		},
		"CreateSandbox": func() error {
			_, err := w.sandboxes.CreateSandbox(bob, &sandboxv1.CreateSandboxRequest{CodebaseId: cb})
			return err
		},
		"ListSandboxes": func() error {
			_, err := w.sandboxes.ListSandboxes(bob, &sandboxv1.ListSandboxesRequest{CodebaseId: cb})
			return err
		},
		"GetSandbox": func() error {
			_, err := w.sandboxes.GetSandbox(bob, &sandboxv1.GetSandboxRequest{SandboxId: sb})
			return err
		},
		"StartSandbox": func() error {
			_, err := w.sandboxes.StartSandbox(bob, &sandboxv1.StartSandboxRequest{SandboxId: sb})
			return err
		},
		"StopSandbox": func() error {
			_, err := w.sandboxes.StopSandbox(bob, &sandboxv1.StopSandboxRequest{SandboxId: sb})
			return err
		},
		"DestroySandbox": func() error {
			_, err := w.sandboxes.DestroySandbox(bob, &sandboxv1.DestroySandboxRequest{SandboxId: sb})
			return err
		},
		"Exec": func() error {
			_, err := w.sandboxes.Exec(bob, &sandboxv1.ExecRequest{SandboxId: sb, Command: "true"})
			return err
		},
		"CreateSession": func() error {
			_, err := w.sandboxes.CreateSession(bob, &sandboxv1.CreateSessionRequest{SandboxId: sb})
			return err
		},
		"ListSessions": func() error {
			_, err := w.sandboxes.ListSessions(bob, &sandboxv1.ListSessionsRequest{SandboxId: sb})
			return err
		},
		"GetSession": func() error {
			_, err := w.sandboxes.GetSession(bob, &sandboxv1.GetSessionRequest{SessionId: session.Id})
			return err
		},
		"SessionExec": func() error {
			_, err := w.sandboxes.SessionExec(bob, &sandboxv1.SessionExecRequest{SessionId: session.Id, Command: "true"})
			return err
		},
		"DestroySession": func() error {
			_, err := w.sandboxes.DestroySession(bob, &sandboxv1.DestroySessionRequest{SessionId: session.Id})
			return err
		},
	} {
		wantCode(t, what, call(), codes.NotFound)
	}
	if got, err := w.download(alice, cb, "f"); got != "alice's" || err != nil {
		t.Errorf("afterwards the file is %q, %v", got, err)
	}
}

func TestATokenDoesNoMoreThanItsScopes(t *testing.T) {
	w := newWorld(t, nil)
	cb := w.codebase(t.Context(), "alice")
	sb := w.sandbox(t.Context(), cb)
	reader := w.as("alice", store.ScopeRead)
	if _, err := w.sandboxes.GetSandbox(reader, &sandboxv1.GetSandboxRequest{SandboxId: sb}); err != nil {
		t.Error(err)
	}
	_, err := w.sandboxes.Exec(reader, &sandboxv1.ExecRequest{SandboxId: sb, Command: "true"})
	wantCode(t, "Exec", err, codes.PermissionDenied)
	_, err = w.sandboxes.DestroySandbox(reader, &sandboxv1.DestroySandboxRequest{SandboxId: sb})
	wantCode(t, "DestroySandbox", err, codes.PermissionDenied)
	wantCode(t, "UploadFiles", w.upload(reader, cb, "f", "x"), codes.PermissionDenied)

	unknown := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer nonsense")
	_, err = w.sandboxes.GetSandbox(unknown, &sandboxv1.GetSandboxRequest{SandboxId: sb})
	wantCode(t, "a wrong token, although none is needed", err, codes.Unauthenticated)
	// Only a gateway's word is taken for a certificate.
	forged := metadata.AppendToOutgoingContext(unknown, "agentfense-client-cert-bin", "x")
	_, err = w.sandboxes.GetSandbox(forged, &sandboxv1.GetSandboxRequest{SandboxId: sb})
	wantCode(t, "a forged certificate", err, codes.Unauthenticated)
}

// One record that cannot be read does not hide the others.
func TestADamagedRecordIsListedAsSuch(t *testing.T) {
	w := newWorld(t, nil)
	cb := w.codebase(t.Context(), "me")
	var ids []string
	for range 2 {
		made, err := w.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{CodebaseId: cb})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, made.Id)
	}
	record := filepath.Join(w.home.Dir(), "sandboxes", ids[0], "sandbox.json")
	text, err := os.ReadFile(record)
	if err == nil {
		err = os.WriteFile(record, text[:len(text)/2], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer os.WriteFile(record, text, 0o600)
	list, err := w.sandboxes.ListSandboxes(t.Context(), &sandboxv1.ListSandboxesRequest{})
	if err != nil || len(list.Sandboxes) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	for i, want := range []sandboxv1.SandboxStatus{sandboxv1.SandboxStatus_SANDBOX_STATUS_ERROR, sandboxv1.SandboxStatus_SANDBOX_STATUS_PENDING} {
		got := list.Sandboxes[i]
		if got.Id != ids[i] || got.Status != want || strings.Contains(got.StatusReason, w.home.Dir()) {
			t.Errorf("listed %v, want %s as %s", got, ids[i], want)
		}
	}
}
