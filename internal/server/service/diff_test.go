package service_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/sandbox/config"
)

func TestDiff(t *testing.T) {
	w := newWorld(t, func(c *config.Config) { c.Sandbox.Sync = config.SyncManual })
	ctx := t.Context()
	cb := w.codebase(ctx, "me")
	if err := w.upload(ctx, cb, "b", "one\ntwo\n"); err != nil {
		t.Fatal(err)
	}
	sb := w.sandbox(ctx, cb)
	command := "echo two > b; printf '\\000x' > binary; printf 'a\\377\\n' > bytes; ln -s b link; seq 800000 > large; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit"
	if r, err := w.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: sb, Command: command}); err != nil || r.ExitCode != 0 {
		t.Fatal(r, err)
	}
	got := map[string]*sandboxv1.FileDiff{}
	var order []string
	for token := ""; ; {
		page, err := w.sandboxes.Diff(ctx, &sandboxv1.DiffRequest{SandboxId: sb, PageSize: 2, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		if proto.Size(page) > 4<<20 || len(page.Files) > 2 {
			t.Errorf("a page of %d files, %d bytes", len(page.Files), proto.Size(page))
		}
		for _, f := range page.Files {
			got[f.Path] = f
			order = append(order, f.Path)
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	if want := ".git/hooks/pre-commit b binary bytes large link"; strings.Join(order, " ") != want {
		t.Fatalf("pages have %v, want %s", order, want)
	}
	b := got["b"]
	if b.Status != sandboxv1.ChangeStatus_CHANGE_STATUS_MODIFIED || b.Deleted != 1 || b.Inserted != 0 || !strings.Contains(b.Patch, "\n-one\n two\n") || b.Old.GetSize() != 8 || b.New.GetSize() != 4 {
		t.Errorf("b: %v", b)
	}
	if f := got["binary"]; !f.Binary || f.Patch != "" || f.Old != nil {
		t.Errorf("binary: %v", f)
	}
	if f := got["bytes"]; !strings.Contains(f.Patch, "+a\uFFFD\n") || !strings.Contains(string(f.PatchBytes), "+a\xff\n") {
		t.Errorf("bytes: %v", f)
	}
	if f := got["link"]; f.New.GetSymlinkTarget() != "b" {
		t.Errorf("link: %v", f)
	}
	if f := got["large"]; !f.TooLarge && !f.PatchOmitted || f.Patch != "" {
		t.Errorf("large: too large %v, omitted %v", f.TooLarge, f.PatchOmitted)
	}
	if f := got[".git/hooks/pre-commit"]; f.Risk != sandboxv1.Risk_RISK_RUNS_ON_HOST || f.RiskReason == "" {
		t.Errorf("hook: %v", f)
	}
	names, err := w.sandboxes.Diff(ctx, &sandboxv1.DiffRequest{SandboxId: sb, Paths: []string{"b"}, NamesOnly: true})
	if err != nil || len(names.Files) != 1 || names.Files[0].Patch != "" {
		t.Errorf("names: %v, %v", names, err)
	}
	_, err = w.sandboxes.Diff(ctx, &sandboxv1.DiffRequest{SandboxId: sb, Paths: []string{"absent"}})
	wantCode(t, "where nothing changed", err, codes.NotFound)
}
