package service_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/sandbox/attest"
	"github.com/agentfense/agentfense/internal/server/store"
)

// A statement has the policies: who may not know them gets none, and applies nothing by asking.
func TestAStatementIsForWhoMayKnowThePolicies(t *testing.T) {
	w := newWorld(t, nil)
	dir := tree(t, "f=old")
	me := w.as("me", store.AllScopes)
	sb := w.sandbox(me, w.linked("me", dir))
	if _, err := w.sandboxes.Exec(me, &sandboxv1.ExecRequest{SandboxId: sb, Command: "printf new > f"}); err != nil {
		t.Fatal(err)
	}
	ask := func(change func(*sandboxv1.ApplyRequest)) *sandboxv1.ApplyRequest {
		r := &sandboxv1.ApplyRequest{SandboxId: sb, Attest: true}
		change(r)
		return r
	}
	_, err := w.sandboxes.Apply(w.as("me", store.ScopeExec|store.ScopeApply), ask(func(*sandboxv1.ApplyRequest) {}))
	wantCode(t, "without the scope read", err, codes.PermissionDenied)
	_, err = w.sandboxes.Apply(me, ask(func(*sandboxv1.ApplyRequest) {}))
	wantCode(t, "a running sandbox without a digest", err, codes.FailedPrecondition)
	for what, change := range map[string]func(*sandboxv1.ApplyRequest){
		"a dry run": func(r *sandboxv1.ApplyRequest) { r.DryRun = true },
		"hunks":     func(r *sandboxv1.ApplyRequest) { r.Hunks = []string{"x"} },
		"a resolution": func(r *sandboxv1.ApplyRequest) {
			r.OnConflict = sandboxv1.ConflictResolution_CONFLICT_RESOLUTION_THEIRS
		},
		"a branch and a resolution": func(r *sandboxv1.ApplyRequest) {
			r.ToBranch, r.GitUser = "b", &sandboxv1.GitUser{Name: "n", Email: "e"}
			r.OnConflict = sandboxv1.ConflictResolution_CONFLICT_RESOLUTION_THEIRS
		},
	} {
		_, err = w.sandboxes.Apply(me, ask(change))
		wantCode(t, what, err, codes.InvalidArgument)
	}
	if got := contentOf(t, dir, "f"); got != "old" {
		t.Fatalf("a refused call changed f: %q", got)
	}
	shown, err := w.sandboxes.Diff(me, &sandboxv1.DiffRequest{SandboxId: sb})
	if err != nil {
		t.Fatal(err)
	}
	done, err := w.sandboxes.Apply(me, ask(func(r *sandboxv1.ApplyRequest) { r.ReviewedDigest = shown.Digest }))
	if err != nil {
		t.Fatal(err)
	}
	st, err := attest.Parse(done.Statement)
	if err != nil || len(st.Predicate.Changes) != 1 || st.Predicate.Review.Digest != shown.Digest || st.Predicate.Sandbox.ID != sb {
		t.Errorf("%+v, %v", st, err)
	}
	if differ, err := st.CompareDir(dir); err != nil || len(differ) != 0 {
		t.Errorf("%q, %v", differ, err)
	}
	none, err := w.sandboxes.Apply(me, ask(func(r *sandboxv1.ApplyRequest) { r.ReviewedDigest = shown.Digest }))
	if err == nil && len(none.Statement) != 0 {
		t.Errorf("a second apply has a statement: %s", none.Statement)
	}
}

// What a merge makes was not shown, so it is not attested, and not applied.
func TestNoMergeIsAttested(t *testing.T) {
	w := newWorld(t, nil)
	dir := tree(t, "f=1\n2\n3\n4\n5\n6\n7\n")
	me := w.as("me", store.AllScopes)
	sb := w.sandbox(me, w.linked("me", dir))
	if _, err := w.sandboxes.Exec(me, &sandboxv1.ExecRequest{SandboxId: sb, Command: "sed -i s/1/one/ f"}); err != nil {
		t.Fatal(err)
	}
	shown, err := w.sandboxes.Diff(me, &sandboxv1.DiffRequest{SandboxId: sb})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("1\n2\n3\n4\n5\n6\nseven\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = w.sandboxes.Apply(me, &sandboxv1.ApplyRequest{SandboxId: sb, Attest: true, ReviewedDigest: shown.Digest})
	wantCode(t, "a text that would be merged", err, codes.FailedPrecondition)
	if got := contentOf(t, dir, "f"); got != "1\n2\n3\n4\n5\n6\nseven\n" {
		t.Errorf("f is %q", got)
	}
	if _, err = w.sandboxes.Apply(me, &sandboxv1.ApplyRequest{SandboxId: sb, ReviewedDigest: shown.Digest}); err != nil {
		t.Errorf("without a statement it is merged: %v", err)
	}
}

// A statement about a commit has the policies, too.
func TestACommitIsAttestedForWhoMayKnowThePolicies(t *testing.T) {
	testenv.Command(t, "git")
	w := newWorld(t, nil)
	dir := tree(t, "f=old")
	for _, args := range [][]string{{"init", "-q", "."}, {"add", "f"}, {"commit", "-qm", "first"}} {
		args = append([]string{"-C", dir, "-c", "user.name=n", "-c", "user.email=e@example.org"}, args...)
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git: %v\n%s", err, out)
		}
	}
	me := w.as("me", store.AllScopes)
	sb := w.sandbox(me, w.linked("me", dir))
	if _, err := w.sandboxes.Exec(me, &sandboxv1.ExecRequest{SandboxId: sb, Command: "printf new > f"}); err != nil {
		t.Fatal(err)
	}
	shown, err := w.sandboxes.Diff(me, &sandboxv1.DiffRequest{SandboxId: sb})
	if err != nil {
		t.Fatal(err)
	}
	r := &sandboxv1.ApplyRequest{
		SandboxId: sb, Attest: true, ReviewedDigest: shown.Digest, ToBranch: "b", GitUser: &sandboxv1.GitUser{Name: "n", Email: "e@example.org"},
	}
	_, err = w.sandboxes.Apply(w.as("me", store.ScopeExec|store.ScopeApply), r)
	wantCode(t, "without the scope read", err, codes.PermissionDenied)
	done, err := w.sandboxes.Apply(me, r)
	if err != nil {
		t.Fatal(err)
	}
	st, err := attest.Parse(done.Statement)
	if err != nil || st.Predicate.Commit == nil || st.Predicate.Commit.ID != done.Commit {
		t.Fatalf("%+v, %v", st, err)
	}
	if differ, err := st.CheckCommit(t.Context(), dir, "b"); err != nil || len(differ) != 0 {
		t.Errorf("%q, %v", differ, err)
	}
	if got := contentOf(t, dir, "f"); got != "old" {
		t.Errorf("f is %q", got)
	}
}
