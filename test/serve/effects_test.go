package serve_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/server/store"
)

// effects are what the result of a command tells of it, in short.
type effects struct {
	Denied  []string // "PROGRAM OPERATION PATH PERMISSION RULE#INDEX×COUNT"
	Changed []string // "KIND PATH", of a renamed one "renamed OLD PATH"
}

func effectsOf(denied []*sandboxv1.Denial, changed []*sandboxv1.FileChange) effects {
	var e effects
	for _, d := range denied {
		permission := strings.ToLower(strings.TrimPrefix(d.Permission.String(), "PERMISSION_"))
		e.Denied = append(e.Denied, fmt.Sprintf("%s %s %s %s %s#%d×%d", d.Program, d.Operation, d.Path, permission, d.Rule, d.RuleIndex, d.Count))
	}
	for _, c := range changed {
		kind := strings.ToLower(strings.TrimPrefix(c.Kind.String(), "CHANGE_KIND_"))
		e.Changed = append(e.Changed, strings.Join(slices.DeleteFunc([]string{kind, c.OldPath, c.Path}, func(s string) bool { return s == "" }), " "))
	}
	return e
}

// guarded makes a running sandbox with something of each permission.
func (s *server) guarded() string {
	s.t.Helper()
	cb := s.codebase(map[string]string{"hidden": "1", "listed": "2", "read": "3", "a": "4", "b": "5", "c": "6", "d/f": "7"})
	return s.sandbox(cb,
		&sandboxv1.PermissionRule{Pattern: "**", Permission: sandboxv1.Permission_PERMISSION_WRITE},
		&sandboxv1.PermissionRule{Pattern: "/hidden", Permission: sandboxv1.Permission_PERMISSION_NONE},
		&sandboxv1.PermissionRule{Pattern: "/listed", Permission: sandboxv1.Permission_PERMISSION_VIEW},
		&sandboxv1.PermissionRule{Pattern: "/read", Permission: sandboxv1.Permission_PERMISSION_READ})
}

func TestAResultTellsWhatWasDeniedAndChanged(t *testing.T) {
	s := start(t)
	id := s.guarded()
	for _, tt := range []struct {
		name, command string
		want          effects
	}{
		{"nothing", "cat a; ls -l listed", effects{}},
		{"a hidden file", "cat hidden; true", effects{Denied: []string{"cat open hidden none /hidden#1×1"}}},
		{"a file that is only listed, again and again", "exec cat listed listed listed; true", effects{Denied: []string{"cat open listed view /listed#2×3"}}},
		{"writing to what is read only, by the shell", "echo >>read; true", effects{Denied: []string{"sh open read read /read#3×1"}}},
		{
			"removing it, by two programs", "rm -f read; unlink read; true",
			effects{Denied: []string{"rm unlink read read /read#3×1", "unlink unlink read read /read#3×1"}},
		},
		{
			"a file of each kind of change", "echo x > new; echo x >> a; mv b moved; rm c; mkdir dir",
			effects{Changed: []string{"modified a", "deleted c", "created dir", "renamed b moved", "created new"}},
		},
		{"what leaves no trace", "echo x > t; rm t", effects{}},
		{"a file replaced by a new one", "echo y > .a; mv .a a", effects{Changed: []string{"modified a"}}},
		{"a directory renamed", "mv d e", effects{Changed: []string{"renamed d e"}}},
		{"a mode", "chmod 600 a", effects{Changed: []string{"modified a"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := s.sandboxes.Exec(t.Context(), &sandboxv1.ExecRequest{SandboxId: id, Command: tt.command})
			if diff := gocmp.Diff(tt.want, effectsOf(must(t, r, err).Denied, r.Changed)); diff != "" {
				t.Errorf("effects (-want +got):\n%s", diff)
			}
			if int(r.ChangedCount) != len(tt.want.Changed) || r.DeniedCount != countOf(r.Denied) {
				t.Errorf("counts %d and %d", r.DeniedCount, r.ChangedCount)
			}
			if want := deniedInLog(t, s, id, r.ExecId); want != r.DeniedCount {
				t.Errorf("the audit log has %d refusals of %s, the result %d", want, r.ExecId, r.DeniedCount)
			}
		})
	}
}

func countOf(denied []*sandboxv1.Denial) (n int64) {
	for _, d := range denied {
		n += d.Count
	}
	return n
}

// deniedInLog counts the refusals that the audit log has of a command.
func deniedInLog(t *testing.T, s *server, id, execID string) (n int64) {
	t.Helper()
	log, err := s.sandboxes.Audit(t.Context(), &sandboxv1.AuditRequest{SandboxId: id})
	ended := false
	for err == nil {
		var e *sandboxv1.AuditEvent
		if e, err = log.Recv(); err != nil {
			break
		}
		var record struct {
			Exec  string
			Count int64
		}
		if err := json.Unmarshal([]byte(e.Record), &record); err != nil {
			t.Fatal(err)
		}
		if record.Exec != execID {
			continue
		}
		ended = ended || e.Event == "command_executed"
		if e.Event == "permission_denied" {
			n += record.Count
		}
	}
	if !errors.Is(err, io.EOF) || !ended {
		t.Errorf("the audit log of %q ended with %v, the command's end there: %v", execID, err, ended)
	}
	return n
}

func TestEffectsAreBounded(t *testing.T) {
	s := start(t)
	id := s.guarded()
	got, err := s.sandboxes.Exec(t.Context(), &sandboxv1.ExecRequest{
		SandboxId: id, Command: "touch $(seq -f n%.0f 1500); exec cat $(yes hidden | head -n 1500)",
	})
	if must(t, got, err).ChangedCount != 1500 || len(got.Changed) != 1000 || got.Changed[0].Path != "n1" {
		t.Errorf("%d changes, %d are named", got.ChangedCount, len(got.Changed))
	}
	if got.DeniedCount != 1500 || len(got.Denied) != 1 || got.Denied[0].Count != 1500 {
		t.Errorf("%d refusals, named are %v", got.DeniedCount, got.Denied)
	}
	got, err = s.sandboxes.Exec(t.Context(), &sandboxv1.ExecRequest{SandboxId: id, Command: "exec cat $(seq -f hidden/%.0f 1500)"})
	if must(t, got, err).DeniedCount != 1500 {
		t.Errorf("%d refusals below a hidden directory", got.DeniedCount)
	}
}

// TestEffectsOfCommandsAtOnceAreApart runs commands side by side, and one that
// has left a process behind, which does the same.
func TestEffectsOfCommandsAtOnceAreApart(t *testing.T) {
	s := start(t, "AGENTFENSE_SANDBOX_SYNC=manual")
	id := s.guarded()
	s.exec(id, "(while [ ! -e stop ]; do echo x > left; cat listed; sleep 0.01; done) >/dev/null 2>&1 &")
	const loop = "i=0; while [ $i -lt 40 ]; do (echo x >> out-%[1]s; cat %[1]s) 2>/dev/null; i=$((i+1)); done"
	results := make([]*sandboxv1.ExecResult, 2)
	done := make(chan error)
	for i, denied := range []string{"hidden", "listed"} {
		go func() {
			r, err := s.sandboxes.Exec(t.Context(), &sandboxv1.ExecRequest{SandboxId: id, Command: fmt.Sprintf(loop, denied)})
			results[i] = r
			done <- err
		}()
	}
	if err := cmp.Or(<-done, <-done); err != nil {
		t.Fatal(err)
	}
	for i, path := range []string{"hidden", "listed"} {
		r := results[i]
		if len(r.Changed) != 1 || r.Changed[0].Path != "out-"+path || r.ChangedCount != 1 {
			t.Errorf("changed %v", r.Changed)
		}
		if r.DeniedCount != 40 || slices.ContainsFunc(r.Denied, func(d *sandboxv1.Denial) bool { return d.Path != path }) {
			t.Errorf("denied %d: %v", r.DeniedCount, r.Denied)
		}
	}
	if results[0].ExecId == results[1].ExecId || results[0].ExecId == "" {
		t.Errorf("ids %q and %q", results[0].ExecId, results[1].ExecId)
	}
	s.exec(id, "touch stop")
}

// TestEffectsOfASession has one shell do the same twice, by itself and by
// others: each command has its own.
func TestEffectsOfASession(t *testing.T) {
	s := start(t)
	id := s.guarded()
	made, err := s.sandboxes.CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{SandboxId: id})
	must(t, made, err)
	want := effects{
		Denied:  []string{"sh open listed view /listed#2×2", "cat open hidden none /hidden#1×1"},
		Changed: []string{"modified a"},
	}
	seen := map[string]bool{}
	for range 3 {
		r, err := s.sandboxes.SessionExec(t.Context(), &sandboxv1.SessionExecRequest{
			SessionId: made.Id, Command: "echo x >> a; read x < listed; read x < listed; cat hidden",
		})
		if diff := gocmp.Diff(want, effectsOf(must(t, r, err).Denied, r.Changed)); diff != "" {
			t.Errorf("effects (-want +got):\n%s", diff)
		}
		seen[r.ExecId] = true
	}
	if len(seen) != 3 {
		t.Errorf("ids %v", seen)
	}
	last := s.lastOutput(s.sandboxes.SessionExecStream(t.Context(), &sandboxv1.SessionExecRequest{SessionId: made.Id, Command: "rm b; cat listed"}))
	want = effects{Denied: []string{"cat open listed view /listed#2×1"}, Changed: []string{"deleted b"}}
	if diff := gocmp.Diff(want, effectsOf(last.Denied, last.Changed)); diff != "" {
		t.Errorf("effects of a stream (-want +got):\n%s", diff)
	}
}

// TestThePolicyIsForThoseWhoMayReadIt: whoever may run commands alone is told
// what was refused, but no pattern, by no call.
func TestThePolicyIsForThoseWhoMayReadIt(t *testing.T) {
	s := start(t)
	id := s.guarded()
	for scopes, rules := range map[store.Scopes]int{
		store.ScopeExec: 0, store.ScopeExec | store.ScopeApply: 0,
		store.ScopeExec | store.ScopeRead: 4, store.ScopeExec | store.ScopeManage: 4,
	} {
		t.Run(scopes.String(), func(t *testing.T) {
			token := s.tokenOf("", scopes)
			client, ctx := sandboxv1.NewSandboxServiceClient(s.facesOf(token).grpc.Conn), withToken(t.Context(), token)
			want := "cat open listed view #2×1"
			if rules > 0 {
				want = "cat open listed view /listed#2×1"
			}
			for call, denied := range deniedByEachCall(ctx, s, client, id) {
				if diff := gocmp.Diff([]string{want}, effectsOf(denied, nil).Denied); diff != "" {
					t.Errorf("%s denied (-want +got):\n%s", call, diff)
				}
			}
			stopped, err := client.StopSandbox(ctx, &sandboxv1.StopSandboxRequest{SandboxId: id})
			if n := len(must(t, stopped, err).Permissions); n != rules {
				t.Errorf("StopSandbox shows %d rules, want %d", n, rules)
			}
			started, err := client.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxId: id})
			if n := len(must(t, started, err).Permissions); n != rules {
				t.Errorf("StartSandbox shows %d rules, want %d", n, rules)
			}
		})
	}
}

// deniedByEachCall runs by each call that runs a command one that is refused something.
func deniedByEachCall(ctx context.Context, s *server, client sandboxv1.SandboxServiceClient, id string) map[string][]*sandboxv1.Denial {
	s.t.Helper()
	const command = "cat listed"
	denied := map[string][]*sandboxv1.Denial{}
	result, err := client.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: id, Command: command})
	denied["Exec"] = must(s.t, result, err).Denied
	denied["ExecStream"] = s.lastOutput(client.ExecStream(ctx, &sandboxv1.ExecRequest{SandboxId: id, Command: command})).Denied
	session, err := client.CreateSession(ctx, &sandboxv1.CreateSessionRequest{SandboxId: id})
	session = must(s.t, session, err)
	result, err = client.SessionExec(ctx, &sandboxv1.SessionExecRequest{SessionId: session.Id, Command: command})
	denied["SessionExec"] = must(s.t, result, err).Denied
	denied["SessionExecStream"] = s.lastOutput(
		client.SessionExecStream(ctx, &sandboxv1.SessionExecRequest{SessionId: session.Id, Command: command})).Denied
	with, err := client.Attach(ctx)
	first := starts(&sandboxv1.AttachRequest_Start{SandboxId: id, Argv: []string{"/bin/sh", "-c", command}})
	if err := errors.Join(err, with.Send(first)); err != nil {
		s.t.Fatal(err)
	}
	denied["Attach"] = s.lastOutput(with, nil).Denied
	return denied
}

// lastOutput returns the last message of a command's output.
func (s *server) lastOutput(from sandboxv1.SandboxService_ExecStreamClient, err error) (last *sandboxv1.ExecOutput) {
	s.t.Helper()
	for err == nil {
		var m *sandboxv1.ExecOutput
		if m, err = from.Recv(); err == nil {
			last = m
		}
	}
	if !errors.Is(err, io.EOF) || last.GetExitCode() == 0 && last.ExitCode == nil {
		s.t.Fatalf("the output ended with %v, %v", last, err)
	}
	return last
}

func TestTheLastMessageOfAStreamHasTheEffects(t *testing.T) {
	s := start(t)
	id := s.guarded()
	want := effects{Denied: []string{"cat open listed view /listed#2×1"}, Changed: []string{"created new"}}
	check := func(last *sandboxv1.ExecOutput) {
		t.Helper()
		if diff := gocmp.Diff(want, effectsOf(last.Denied, last.Changed)); diff != "" {
			t.Errorf("effects (-want +got):\n%s", diff)
		}
		if last.DeniedCount != 1 || last.ChangedCount != 1 || last.ExecId == "" {
			t.Errorf("last message %v", last)
		}
		s.exec(id, "rm new")
	}
	const command = "echo x > new; cat listed"
	check(s.lastOutput(s.sandboxes.ExecStream(t.Context(), &sandboxv1.ExecRequest{SandboxId: id, Command: command})))

	with, err := s.sandboxes.Attach(t.Context())
	first := starts(&sandboxv1.AttachRequest_Start{SandboxId: id, Argv: []string{"/bin/sh", "-c", "read go; " + command}, Detach: true})
	if err := errors.Join(err, with.Send(first)); err != nil {
		t.Fatal(err)
	}
	begun, err := with.Recv()
	must(t, begun, err)
	resumed, err := s.sandboxes.Attach(t.Context())
	must(t, resumed, err)
	if err := errors.Join(
		resumed.Send(resumes(&sandboxv1.AttachRequest_Resume{SandboxId: id, ExecId: begun.ExecId})),
		with.Send(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Stdin{Stdin: []byte("go\n")}}),
	); err != nil {
		t.Fatal(err)
	}
	again := s.lastOutput(resumed, nil)
	if diff := gocmp.Diff(want, effectsOf(again.Denied, again.Changed)); diff != "" || again.ExecId != begun.ExecId {
		t.Errorf("%q taken up has ended as %q with the effects (-want +got):\n%s", begun.ExecId, again.ExecId, diff)
	}
	check(s.lastOutput(with, nil))
}
