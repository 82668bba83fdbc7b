package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// TestNestedMountsAreToldOf: mounts below the source are not accessible, and agentfense
// reports them, except those that the policy hides.
func TestNestedMountsAreToldOf(t *testing.T) {
	testenv.Root(t)
	s := harness.New(t, binary, map[string]string{"a b/": "", "secrets/": "", "file": "1"})
	for _, dir := range []string{"a b", "a b/inner", "secrets"} {
		at := filepath.Join(s.Source, dir)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", at, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(at, 0); err != nil {
				t.Error(err)
			}
		})
		s.Write(dir+"/reachable", "1")
	}
	const want = "not shown: what is mounted below the source, at a b;"
	r := s.Run("ls -A 'a b'; ! touch 'a b/x'", "--preset", "agent-safe", "--write", "/a b/")
	if r.Code != 0 || r.Stdout != "" || strings.Count(r.Stderr, want) != 1 {
		t.Errorf("run: exit code %d, stdout %q, want an empty directory and stderr with %q\n%s", r.Code, r.Stdout, want, r.Stderr)
	}
	if r := s.Agentfense("create", "another"); !strings.Contains(r.Stderr, want) {
		t.Errorf("create says %q, want %q", r.Stderr, want)
	}
	agentfense(t, s, "rm", "another")
}
