//go:build linux

package client_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/client"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// Commits come back to a new branch, and to the one that is checked out with its work tree, which
// undo takes back.
func TestCommitsComeBack(t *testing.T) {
	testenv.Overlay(t)
	config := t.TempDir() + "/gitconfig"
	if err := os.WriteFile(config, []byte("[user]\n\tname = A Client\n\temail = client@example.org\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_CONFIG_GLOBAL", config)
	dir := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if err := os.WriteFile(dir+"/f", []byte("old\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	git("init", "-q", "-b", "main", ".")
	git("add", "f")
	git("commit", "-qm", "first")
	first := git("rev-parse", "main")
	c := open(t)
	base, err := c.LinkCodebase(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	box, err := c.CreateSandbox(t.Context(), base.ID, client.WithPreset("full-access"), client.WithGit("clean"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(box.Destroy(ctx), c.DeleteCodebase(ctx, base.ID)); err != nil {
			t.Error(err)
		}
	})
	run(t, box, "echo new >f; git commit -qam second")
	listed, err := box.Commits(t.Context())
	if err != nil || listed.Source != first || len(listed.Commits) != 1 || listed.Commits[0].Subject != "second" {
		t.Fatalf("%+v, %v", listed, err)
	}
	made, err := box.ApplyCommits(t.Context(), "made", client.CommitsOptions{Reviewed: listed.Commits[0].ID})
	if err != nil || made.Branch != "made" || made.CheckedOut || made.Transaction != "" || made.Commit != git("rev-parse", "made") {
		t.Fatalf("%+v, %v", made, err)
	}
	if again, err := box.Commits(t.Context()); err != nil || listed.Commits[0].Applied || !again.Commits[0].Applied {
		t.Errorf("after they were applied: %+v, %v", again, err)
	}
	if _, err := box.ApplyCommits(t.Context(), "", client.CommitsOptions{Reviewed: first}); !errors.Is(err, client.ErrPrecondition) {
		t.Errorf("not reviewed: %v", err)
	}
	if _, err := box.ApplyCommits(t.Context(), "", client.CommitsOptions{AtBase: true}); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("at the base: %v", err)
	}
	if err := os.WriteFile(dir+"/f", []byte("mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := box.ApplyCommits(t.Context(), "", client.CommitsOptions{}); !errors.Is(err, client.ErrConflict) {
		t.Errorf("with a change in the work tree: %v", err)
	}
	git("checkout", "-q", "f")
	onto, err := box.ApplyCommits(t.Context(), "", client.CommitsOptions{})
	if err != nil || onto.Branch != "main" || !onto.CheckedOut || onto.Commit != git("rev-parse", "main") {
		t.Fatalf("%+v, %v", onto, err)
	}
	wantFile(t, dir+"/f", "new\n")
	if got := git("status", "--porcelain"); got != "" {
		t.Errorf("the work tree differs: %s", got)
	}
	undone, err := box.Undo(t.Context())
	if err != nil || undone.Of.ID != onto.Transaction || undone.Of.Branch == nil || *undone.Of.Branch != (client.BranchMove{Branch: "main", FromCommit: first, ToCommit: onto.Commit}) {
		t.Fatalf("undo: %+v, %v", undone, err)
	}
	wantFile(t, dir+"/f", "old\n")
	if got := git("rev-parse", "main"); got != first {
		t.Errorf("main is at %s after undo, want %s", got, first)
	}
}
