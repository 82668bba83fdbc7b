package service_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/server/store"
)

// exec runs a command, which must succeed.
func (w *world) exec(ctx context.Context, id, command string) *sandboxv1.ExecResult {
	w.t.Helper()
	r, err := w.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: id, Command: command})
	if err != nil || r.ExitCode != 0 {
		w.t.Fatalf("%s: %v, %v", command, r, err)
	}
	return r
}

// shown reads all pages of a diff, of so many files each.
func (w *world) shown(ctx context.Context, r *sandboxv1.DiffRequest) (digest string, files []*sandboxv1.FileDiff) {
	w.t.Helper()
	for {
		page, err := w.sandboxes.Diff(ctx, r)
		if err != nil {
			w.t.Fatal(err)
		}
		files = append(files, page.Files...)
		if r.PageToken = page.NextPageToken; r.PageToken == "" {
			return page.Digest, files
		}
	}
}

// left applies and returns the outcomes of what was not applied.
func (w *world) left(ctx context.Context, r *sandboxv1.ApplyRequest) map[string]string {
	w.t.Helper()
	answer, err := w.sandboxes.Apply(ctx, r)
	if err != nil {
		w.t.Fatal(err)
	}
	got := map[string]string{}
	for _, p := range answer.Results {
		if p.Outcome != sandboxv1.Outcome_OUTCOME_APPLIED {
			got[p.Path] = strings.TrimPrefix(p.Outcome.String(), "OUTCOME_")
		}
	}
	return got
}

func manualSync(c *config.Config) { c.Sandbox.Sync = config.SyncManual }

func TestApplyTakesWhatDiffHasShown(t *testing.T) {
	w := newWorld(t, manualSync)
	alice := w.as("alice", store.AllScopes)
	cb := w.codebase(alice, "alice")
	sb := w.sandbox(alice, cb)
	w.exec(alice, sb, `for f in a b c d e; do echo good > $f; done; head -c 100 /dev/zero > zeros; mkdir dir; echo good > dir/f`)

	if got, _ := w.shown(alice, &sandboxv1.DiffRequest{SandboxId: sb, NamesOnly: true}); got != "" {
		t.Errorf("a list of names has the digest %s", got)
	}
	whole, files := w.shown(alice, &sandboxv1.DiffRequest{SandboxId: sb})
	paged, again := w.shown(alice, &sandboxv1.DiffRequest{SandboxId: sb, PageSize: 2})
	if whole == "" || whole != paged || len(files) != 7 || len(again) != 7 {
		t.Errorf("in one page %s of %d files, in several %s of %d", whole, len(files), paged, len(again))
	}
	for _, f := range files {
		if len(f.New.Sha256) != 64 {
			t.Errorf("%s has the SHA-256 %q", f.Path, f.New.Sha256)
		}
	}
	_, err := w.sandboxes.Diff(alice, &sandboxv1.DiffRequest{SandboxId: sb, Paths: []string{"a"}, ShownDigest: "x"})
	wantCode(t, "Diff with what is no digest", err, codes.InvalidArgument)
	part, _ := w.shown(alice, &sandboxv1.DiffRequest{SandboxId: sb, Paths: []string{"a", "dir/f"}})
	rest, _ := w.shown(alice, &sandboxv1.DiffRequest{SandboxId: sb, Paths: []string{"b", "c", "d", "e", "zeros"}, ShownDigest: part, PageSize: 2})
	if part == whole || rest != whole {
		t.Errorf("both parts are %s, the whole is %s", rest, whole)
	}

	w.exec(alice, sb, `touch -r a /tmp/t; echo evil > a; touch -r /tmp/t a; echo new > dir/new; rm e`)
	want := map[string]string{"a": "CHANGED_SINCE_REVIEW", "dir/new": "CHANGED_SINCE_REVIEW", "e": "CHANGED_SINCE_REVIEW"}
	for _, dry := range []bool{true, false} {
		if diff := cmp.Diff(want, w.left(alice, &sandboxv1.ApplyRequest{SandboxId: sb, ReviewedDigest: whole, DryRun: dry})); diff != "" {
			t.Errorf("dry run %v (-want +got):\n%s", dry, diff)
		}
	}
	for path, want := range map[string]string{"a": "", "b": "good\n", "dir/f": "good\n", "dir/new": ""} {
		if got, _ := w.download(alice, cb, path); got != want {
			t.Errorf("%s in the codebase is %q, want %q", path, got, want)
		}
	}
	if got := w.left(alice, &sandboxv1.ApplyRequest{SandboxId: sb}); len(got) > 0 { // as original clients do
		t.Errorf("without a digest %v was left out", got)
	}
	if got, _ := w.download(alice, cb, "a"); got != "evil\n" {
		t.Errorf("a is %q", got)
	}

	_, err = w.sandboxes.Apply(alice, &sandboxv1.ApplyRequest{SandboxId: sb, ReviewedDigest: strings.Repeat("0", 64)})
	wantCode(t, "Apply of what was never shown", err, codes.NotFound)
	_, err = w.sandboxes.Apply(alice, &sandboxv1.ApplyRequest{SandboxId: sb, ReviewedDigest: "../x"})
	wantCode(t, "Apply of what is no digest", err, codes.InvalidArgument)
	_, err = w.sandboxes.Diff(alice, &sandboxv1.DiffRequest{SandboxId: sb, PageToken: strings.Repeat("0", 64) + ":a"})
	wantCode(t, "Diff behind what was never shown", err, codes.NotFound)
}

// What a caller without the scope apply runs reaches the codebase by Apply alone,
// whoever runs something in the sandbox after.
func TestWithoutTheScopeApplyNothingIsSynced(t *testing.T) {
	const runs = store.ScopeRead | store.ScopeExec
	for _, tt := range []struct {
		name string
		run  func(w *world, agent context.Context, sb string)
	}{
		{"a command", func(w *world, agent context.Context, sb string) {
			if !w.exec(agent, sb, "echo agent > f").SyncHeld {
				w.t.Error("the result does not say that the sync is held")
			}
		}},
		{"a command of a session", func(w *world, agent context.Context, sb string) {
			session, err := w.sandboxes.CreateSession(agent, &sandboxv1.CreateSessionRequest{SandboxId: sb})
			if err != nil {
				w.t.Fatal(err)
			}
			r, err := w.sandboxes.SessionExec(agent, &sandboxv1.SessionExecRequest{SessionId: session.Id, Command: "echo agent > f"})
			if err != nil || !r.SyncHeld {
				w.t.Errorf("SessionExec: %v, %v", r, err)
			}
		}},
		{"the shell of a session", func(w *world, agent context.Context, sb string) {
			if _, err := w.sandboxes.CreateSession(agent, &sandboxv1.CreateSessionRequest{SandboxId: sb}); err != nil {
				w.t.Fatal(err)
			}
			w.exec(w.as("alice", store.AllScopes), sb, "echo agent > f")
		}},
		{"an attached command", func(w *world, agent context.Context, sb string) {
			with, err := w.sandboxes.Attach(agent)
			if err == nil {
				err = with.Send(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Start_{
					Start: &sandboxv1.AttachRequest_Start{SandboxId: sb, Argv: []string{"sh", "-c", "echo agent > f"}},
				}})
			}
			for err == nil {
				var out *sandboxv1.ExecOutput
				if out, err = with.Recv(); err == nil && out.ExitCode != nil {
					if !out.SyncHeld {
						w.t.Error("the end does not say that the sync is held")
					}
					return
				}
			}
			w.t.Fatal(err)
		}},
		{"a detached command", func(w *world, agent context.Context, sb string) {
			out, err := w.sandboxes.ExecStream(agent, &sandboxv1.ExecRequest{
				SandboxId: sb, Detach: true, Command: "while ! test -e go; do sleep 0.01; done; echo agent > f; touch done",
			})
			if err == nil {
				_, err = out.Recv() // its name
			}
			if err != nil {
				w.t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, nil)
			admin := w.as("", store.AllScopes)
			cb := w.codebase(admin, "alice")
			sb := w.sandbox(admin, cb)
			w.exec(admin, sb, "echo admin > before")
			tt.run(w, w.as("alice", runs), sb)
			w.exec(admin, sb, "touch go; test ! -e f || exit 0; while ! test -e done; do sleep 0.01; done")
			for path, want := range map[string]string{"before": "admin\n", "f": "", "go": ""} {
				if got, _ := w.download(admin, cb, path); got != want {
					t.Errorf("%s in the codebase is %q, want %q", path, got, want)
				}
			}
			// An apply of a part, or while its processes may run, does not end it.
			w.left(admin, &sandboxv1.ApplyRequest{SandboxId: sb, Paths: []string{"go"}})
			w.exec(admin, sb, "echo admin > after")
			if got, _ := w.download(admin, cb, "f"); got != "" {
				t.Errorf("f reached the codebase after an apply of another path: %q", got)
			}
			if _, err := w.sandboxes.StopSandbox(admin, &sandboxv1.StopSandboxRequest{SandboxId: sb}); err != nil {
				t.Fatal(err)
			}
			if got, _ := w.download(admin, cb, "after"); got != "" {
				t.Errorf("the stop has carried %q over", got)
			}
			w.left(admin, &sandboxv1.ApplyRequest{SandboxId: sb})
			if got, _ := w.download(admin, cb, "f"); got != "agent\n" {
				t.Errorf("after the apply f is %q", got)
			}
			now, err := w.sandboxes.StartSandbox(admin, &sandboxv1.StartSandboxRequest{SandboxId: sb})
			if err != nil || now.SyncHeld {
				t.Fatalf("after the apply: %v, %v", now, err)
			}
			w.exec(admin, sb, "echo admin > last")
			if got, _ := w.download(admin, cb, "last"); got != "admin\n" {
				t.Errorf("the sync has not resumed: last is %q", got)
			}
		})
	}
}
