package serve_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// The next server rolls back an apply that did not commit, and completes one that did, in a sandbox
// that is stopped. Nobody has to apply again for that.
func TestAServerKilledInAnApply(t *testing.T) {
	dir := t.TempDir()
	s := start(t)
	for point, committed := range map[string]bool{"sync: one placed": false, "journal: committed": true, "sync: dropped": true} {
		for name, content := range map[string]string{"changed": "old\n", "gone": "x\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		linked, err := s.codebases.LinkCodebase(t.Context(), &sandboxv1.LinkCodebaseRequest{Name: "l", OwnerId: "me", Path: dir})
		id := s.sandbox(must(t, linked, err).Id)
		s.exec(id, "echo new > changed; rm gone; echo made > made")
		stopped, err := s.sandboxes.StopSandbox(t.Context(), &sandboxv1.StopSandboxRequest{SandboxId: id})
		must(t, stopped, err)
		s.killedAt(point, func() error {
			_, err := s.sandboxes.Apply(t.Context(), &sandboxv1.ApplyRequest{SandboxId: id})
			return err
		})
		want := map[string]string{"changed": "old\n", "gone": "x\n"}
		if committed {
			want = map[string]string{"changed": "new\n", "made": "made\n"}
		}
		for _, name := range []string{"changed", "gone", "made"} {
			if content, err := os.ReadFile(filepath.Join(dir, name)); string(content) != want[name] {
				t.Errorf("killed at %q: %s has %q, %v, want %q", point, name, content, err, want[name])
			}
		}
		if events := s.events(id); slices.Contains(events, "applied") != committed {
			t.Errorf("killed at %q: the log has %q", point, events)
		}
		diff, err := s.sandboxes.Diff(t.Context(), &sandboxv1.DiffRequest{SandboxId: id})
		if left := len(must(t, diff, err).Files); (left == 0) != committed {
			t.Errorf("killed at %q: the sandbox has %d changes", point, left)
		}
		if err := os.RemoveAll(filepath.Join(dir, "made")); err != nil {
			t.Fatal(err)
		}
		empty, err := s.sandboxes.DestroySandbox(t.Context(), &sandboxv1.DestroySandboxRequest{SandboxId: id})
		must(t, empty, err)
	}
}
