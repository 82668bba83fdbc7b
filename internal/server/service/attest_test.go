package service_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
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
		"a branch": func(r *sandboxv1.ApplyRequest) {
			r.ToBranch, r.GitUser = "b", &sandboxv1.GitUser{Name: "n", Email: "e"}
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
