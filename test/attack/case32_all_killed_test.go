package attack_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// When all processes of live sandboxes are killed at once, no mount stays, and each sandbox goes
// on with what it had. There is no daemon whose restart could matter: a killed server's sandboxes
// and a killed host's docker mounts are tested in test/serve.
func TestAllProcessesKilled(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"a": "a\n"}, who...)
		names := []string{"one", "two", "three"}
		for _, name := range names {
			wantCode(t, s.Agentfense("run", "--detach", "--name", name, "--preset", "full-access", "--", "sh", "-c", "echo "+name+" > own; exec sleep 600"), 0)
			t.Cleanup(func() { s.Agentfense("stop", name) })
			testenv.Eventually(t, "the command has written", func() bool {
				return s.Agentfense("exec", name, "--", "test", "-s", "own").Code == 0
			})
		}
		docs := map[string]inspection{}
		for _, name := range names {
			docs[name] = inspect(t, s, name)
		}
		for _, p := range harness.Processes(s.Home) {
			if err := unix.Kill(p.PID, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				t.Errorf("kill the %s of %s: %v", p.Role, p.Sandbox, err)
			}
		}
		for _, name := range names {
			testenv.Eventually(t, "the sandbox is seen stopped", func() bool { return inspect(t, s, name).Status == "stopped" })
			r := s.Agentfense("run", "--name", name, "--", "cat", "a", "own")
			if want := "a\n" + name + "\n"; r.Code != 0 || r.Stdout != want {
				t.Errorf("%s: exit code %d, %q, want %q\n%s", name, r.Code, r.Stdout, want, r.Stderr)
			}
			nothingLeft(t, s, docs[name])
		}
		if entries, err := os.ReadDir(s.Source); err != nil || len(entries) != 1 {
			t.Errorf("the source has %v, %v", entries, err)
		}
		if left, err := filepath.Glob(filepath.Join(s.Home, "sandboxes", "*", "view", "*")); err != nil || len(left) > 0 {
			t.Errorf("views are left: %v, %v", left, err)
		}
	})
}
