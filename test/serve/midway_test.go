package serve_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// syncManually leaves what a sandbox has changed in its delta.
const syncManually = "AGENTFENSE_SANDBOX_SYNC=manual"

// run starts `agentfense run --endpoint` as another user of the server would, in
// the directory dir, and returns it with what it says.
func (s *server) run(dir string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	s.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, binary, append([]string{"run", "--endpoint", s.conn.Target(), "--preset", "full-access"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "AGENTFENSE_HOME="+s.t.TempDir(), "AGENTFENSE_TOKEN="+s.token)
	said := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = said, said
	return cmd, said
}

// midway kills what plays a role in the sandbox.
func (s *server) midway(name string, role harness.Role) {
	s.t.Helper()
	for _, p := range harness.Processes(s.home) {
		if p.Sandbox == name && p.Role == role {
			if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
				s.t.Error(err)
			}
			return
		}
	}
	s.t.Errorf("sandbox %s has no %s", name, role)
}

// TestRunKeepsWhatItChangedWhereTheSandboxStopsMidway ends a sandbox that `run`
// has just made for its command while that command runs.
func TestRunKeepsWhatItChangedWhereTheSandboxStopsMidway(t *testing.T) {
	ends := map[string]func(s *server, name string){
		"supervisor killed": func(s *server, name string) { s.midway(name, harness.Supervisor) },
		"bwrap killed":      func(s *server, name string) { s.midway(name, harness.Bwrap) },
		"guest killed":      func(s *server, name string) { s.midway(name, harness.Guest) },
		"stopped":           func(s *server, name string) { s.agentfense("stop", name) },
		"stopped by the server": func(s *server, name string) {
			_, err := s.sandboxes.StopSandbox(t.Context(), &sandboxv1.StopSandboxRequest{SandboxId: s.idOf(name)})
			must(t, true, err)
		},
	}
	for setting, where := range map[string]string{syncManually: "in the delta", "AGENTFENSE_SANDBOX_SYNC=on_exec": "in the delta or the codebase"} {
		t.Run(where, func(t *testing.T) {
			s := start(t, setting)
			for what, end := range ends {
				t.Run(what, func(t *testing.T) {
					name := strings.ReplaceAll(what, " ", "-")
					source, ready := t.TempDir(), filepath.Join(t.TempDir(), "ready")
					if err := os.WriteFile(filepath.Join(source, "old"), []byte("old\n"), 0o644); err != nil {
						t.Fatal(err)
					}
					cmd, said := s.run(source, "--name", name, "--", "sh", "-c", "echo work > new && sync new && echo ready && exec sleep 600")
					began, err := os.Create(ready)
					cmd.Stdout = must(t, began, err)
					defer began.Close()
					if err := cmd.Start(); err != nil {
						t.Fatal(err)
					}
					testenv.Eventually(t, "the command has written", func() bool {
						got, _ := os.ReadFile(ready)
						return string(got) == "ready\n"
					})
					end(s, name)
					if err := cmd.Wait(); err == nil {
						t.Error("run succeeded")
					}
					s.wantKept(t, name, said.String())
				})
			}
		})
	}
}

// wantKept fails the test unless what the command wrote is still there.
func (s *server) wantKept(t *testing.T, name, said string) {
	t.Helper()
	list, err := s.sandboxes.ListSandboxes(t.Context(), &sandboxv1.ListSandboxesRequest{Name: name})
	boxes := must(t, list, err).Sandboxes
	if len(boxes) != 1 {
		t.Fatalf("the sandbox is gone; run said:\n%s", said)
	}
	if !strings.Contains(said, name) {
		t.Errorf("run does not say that sandbox %s stays:\n%s", name, said)
	}
	changed, err := s.sandboxes.Diff(t.Context(), &sandboxv1.DiffRequest{SandboxId: boxes[0].Id})
	inDelta := slices.ContainsFunc(must(t, changed, err).Files, func(f *sandboxv1.FileDiff) bool {
		return f.Path == "new" && strings.Contains(f.Patch, "+work\n")
	})
	content, err := s.download(boxes[0].CodebaseId, "new")
	if inCodebase := err == nil && content == "work\n"; !inDelta && !inCodebase {
		t.Errorf("what the command wrote is lost: diff %v, codebase %q, %v", changed.Files, content, err)
	}
	if old, err := s.download(boxes[0].CodebaseId, "old"); err != nil || old != "old\n" {
		t.Errorf("the codebase's own file is %q, %v", old, err)
	}
}

// idOf is the id of a sandbox.
func (s *server) idOf(name string) string {
	s.t.Helper()
	list, err := s.sandboxes.ListSandboxes(s.t.Context(), &sandboxv1.ListSandboxesRequest{Name: name})
	boxes := must(s.t, list, err).Sandboxes
	if len(boxes) != 1 {
		s.t.Fatalf("%d sandboxes are called %s", len(boxes), name)
	}
	return boxes[0].Id
}

// TestRunLeavesNothingThatWasNeverStarted has `run` refused before its command
// starts.
func TestRunLeavesNothingThatWasNeverStarted(t *testing.T) {
	s := start(t)
	cmd, said := s.run(t.TempDir(), "--name", "refused", "--workdir", "/nowhere", "--", "true")
	if err := cmd.Run(); err == nil || !strings.Contains(said.String(), "workdir") {
		t.Errorf("run: %v\n%s", err, said)
	}
	boxes, err := s.sandboxes.ListSandboxes(t.Context(), &sandboxv1.ListSandboxesRequest{})
	if got := must(t, boxes, err).Sandboxes; len(got) > 0 {
		t.Errorf("sandboxes are left: %v", got)
	}
	bases, err := s.codebases.ListCodebases(t.Context(), &sandboxv1.ListCodebasesRequest{})
	if got := must(t, bases, err).Codebases; len(got) > 0 {
		t.Errorf("codebases are left: %v", got)
	}
}

// TestDestroyUnusedSparesWhatWasUsed asks to remove a sandbox only if nothing
// would be lost with it.
func TestDestroyUnusedSparesWhatWasUsed(t *testing.T) {
	s := start(t, syncManually)
	cb := s.codebase(map[string]string{"old": "old\n"})
	destroy := func(id string) error {
		_, err := s.sandboxes.DestroySandbox(t.Context(), &sandboxv1.DestroySandboxRequest{SandboxId: id, UnusedOnly: true})
		return err
	}
	changed := s.sandbox(cb)
	s.exec(changed, "echo work > new")
	if err := destroy(changed); err == nil || !strings.Contains(err.Error(), "holds changes") {
		t.Errorf("with changes: %v", err)
	}
	if got := s.exec(changed, "cat new"); got != "work\n" {
		t.Errorf("it has %q afterwards", got)
	}
	busy := s.sandbox(cb)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	running, err := s.sandboxes.ExecStream(ctx, &sandboxv1.ExecRequest{SandboxId: busy, Command: "echo begun; exec sleep 600"})
	must(t, running, err)
	first, err := running.Recv()
	must(t, first, err)
	if err := destroy(busy); err == nil || !strings.Contains(err.Error(), "a command or a session is running in it") {
		t.Errorf("while a command runs: %v", err)
	}
	if err := destroy(s.sandbox(cb)); err != nil {
		t.Errorf("unused: %v", err)
	}
}
