//go:build linux

package client_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/client"
)

// history returns the kinds of the transactions of a sandbox, the latest first.
func history(t *testing.T, box *client.Sandbox) (kinds []string, all []client.Transaction) {
	t.Helper()
	for tx, err := range box.History(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		kinds, all = append(kinds, string(tx.Kind)), append(all, tx)
	}
	return kinds, all
}

func wantFile(t *testing.T, name, want string) {
	t.Helper()
	if got, err := os.ReadFile(name); err != nil || string(got) != want {
		t.Errorf("%s has %q, %v; want %q", name, got, err, want)
	}
}

func TestUndoAndRedo(t *testing.T) {
	c := open(t)
	box, dir := linked(t, c, "full-access", map[string]string{"f": "old\n", "g": "old\n"})
	if _, err := box.Undo(t.Context()); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("nothing to undo: %v", err)
	}
	run(t, box, "echo new >f; rm g")
	applied, err := box.Apply(t.Context())
	if err != nil || applied.TransactionID == "" {
		t.Fatalf("apply: %+v, %v", applied, err)
	}
	kinds, all := history(t, box)
	if len(kinds) != 1 || all[0].ID != applied.TransactionID || all[0].SandboxID != box.ID || all[0].PathCount != 2 || all[0].State != client.TransactionCommitted {
		t.Errorf("history: %+v", all)
	}
	plan, err := box.UndoDryRun(t.Context())
	if err != nil || plan.PathCount != 2 || plan.Paths[1] != (client.ReversedPath{Path: "g", Status: client.ChangeAdded}) || plan.TransactionID != "" {
		t.Errorf("dry run: %+v, %v", plan, err)
	}
	wantFile(t, dir+"/f", "new\n")
	undone, err := box.Undo(t.Context())
	if err != nil || undone.Kind != client.TransactionUndo || undone.Of.ID != applied.TransactionID {
		t.Fatalf("undo: %+v, %v", undone, err)
	}
	wantFile(t, dir+"/f", "old\n")
	wantFile(t, dir+"/g", "old\n")
	redone, err := c.Redo(t.Context(), applied.TransactionID)
	if err != nil || redone.Kind != client.TransactionRedo {
		t.Fatalf("redo: %+v, %v", redone, err)
	}
	wantFile(t, dir+"/f", "new\n")
	if kinds, _ := history(t, box); strings.Join(kinds, " ") != "redo undo apply" {
		t.Errorf("history: %q", kinds)
	}

	if err := os.WriteFile(dir+"/f", []byte("by hand\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = c.Undo(t.Context(), applied.TransactionID)
	if e := (*client.Error)(nil); !errors.Is(err, client.ErrConflict) || !errors.As(err, &e) || len(e.Conflicts) != 1 || e.Conflicts[0] != "f" {
		t.Errorf("a path that has changed since: %v", err)
	}
	if plan, err := box.UndoDryRun(t.Context()); err != nil || plan.ConflictCount != 1 || plan.Paths[0].Conflict == "" {
		t.Errorf("its dry run: %+v, %v", plan, err)
	}
	if _, err := box.Redo(t.Context()); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("nothing to redo: %v", err)
	}
}

func TestApplyToBranchAndAttested(t *testing.T) {
	c := open(t)
	box, dir := linked(t, c, "full-access", map[string]string{"f": "old\n"})
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=Host", "-c", "user.email=host@example.org"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	config := t.TempDir() + "/gitconfig"
	if err := os.WriteFile(config, []byte("[user]\n\tname = A Client\n\temail = client@example.org\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_CONFIG_GLOBAL", config)
	run(t, box, "echo new >f")
	review, err := box.Review(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := box.ApplyToBranch(t.Context(), "made", "", review.Digest); !errors.Is(err, client.ErrPrecondition) {
		t.Errorf("without a repository: %v", err)
	}
	git("init", "-q", "-b", "main", ".")
	git("add", "f")
	git("commit", "-qm", "first")
	made, err := box.ApplyToBranch(t.Context(), "made", "Fix it", review.Digest, "f")
	if err != nil || made.AppliedCount != 1 || made.Commit != git("rev-parse", "made") || made.TransactionID != "" {
		t.Fatalf("%+v, %v", made, err)
	}
	if got, want := git("log", "-1", "--format=%an %ae %cn %s", "made"), "A Client client@example.org A Client Fix it"; got != want {
		t.Errorf("the commit is %q, want %q", got, want)
	}
	wantFile(t, dir+"/f", "old\n")
	if _, err := box.ApplyToBranch(t.Context(), "made", "", review.Digest); !errors.Is(err, client.ErrExists) {
		t.Errorf("a branch that exists: %v", err)
	}
	signed, err := box.ApplyToBranchAttested(t.Context(), "signed", "", review.Digest)
	if err != nil || signed.Commit != git("rev-parse", "signed") || !strings.Contains(string(signed.Statement), `"gitCommit": "`+signed.Commit+`"`) {
		t.Errorf("%+v, %v", signed, err)
	}
	if _, err := box.ApplyToBranchAttested(t.Context(), "", "", review.Digest); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("without a branch: %v", err)
	}
	if _, err := box.ApplyToBranch(t.Context(), "other", "", ""); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("without a digest: %v", err)
	}
	attested, err := box.ApplyAttested(t.Context(), review.Digest)
	if err != nil || !strings.Contains(string(attested.Statement), `"_type": "https://in-toto.io/Statement/v1"`) {
		t.Errorf("%+v, %v", attested, err)
	}
	wantFile(t, dir+"/f", "new\n")
}
