package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// What is read from outside is what commands could read: a link that was made under a wider policy
// shows neither what a fork hides nor what a rule masks.
func TestALinkShowsNothingHiddenFromOutside(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"key": "hidden content\n", ".env": "PASSWORD=masked\n", "open": "shown\n"})
	rules := filepath.Join(t.TempDir(), "policy.yaml")
	err := os.WriteFile(rules, []byte(`version: 1
rules:
  - {pattern: /**, permission: write}
  - {pattern: /key, permission: none}
  - {pattern: .env, permission: read, redact: env}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, s.Run("ln key l1; ln .env l2; ln open l3", "--preset", "full-access"), 0)
	agentfense(t, s, "fork", s.Name, "fork", "--policy", rules)
	defer agentfense(t, s, "rm", "--force", "fork")
	for _, link := range []string{"l1", "l2"} {
		if r := s.Agentfense("exec", "fork", "--", "cat", link); r.Code == 0 {
			t.Errorf("a command reads %s: %s", link, r.Stdout)
		}
		if r := s.Agentfense("files", "cat", "fork", link); r.Code == 0 || r.Stdout != "" || !strings.Contains(r.Stderr, "its name only") {
			t.Errorf("files cat %s: exit code %d, %q, %s", link, r.Code, r.Stdout, r.Stderr)
		}
	}
	if got := agentfense(t, s, "files", "cat", "fork", "l3"); got != "shown\n" {
		t.Errorf("files cat l3: %q", got)
	}
}
