package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/sandbox/userrules"
	"github.com/agentfense/agentfense/test/harness"
)

// The rules that a user keeps for a project are unreachable inside, also if the state directory
// lies in the project: a command neither reads nor changes them, and what it makes at their place
// is never applied.
func TestTheRulesOfAProjectAreTheUsers(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"conf": "text\n", "state/": ""})
	s.Home = filepath.Join(s.Source, "state")
	file := userrules.File(s.Home, s.Source)
	name := filepath.Base(file)
	rules := "version: 1\nproject: " + s.Source + "\nrules:\n  - {pattern: '**', permission: write}\n"
	script := `
cat conf
ls state 2>&1; cat state/projects/* 2>&1
mkdir state; mkdir state/projects
printf '%s' "$RULES" >state/projects/` + name + ` || printf '%s' "$RULES" >` + file + `
ln -s . state; mkdir -p x/projects; printf '%s' "$RULES" >x/projects/` + name + `; mv x state
rm -rf x
true`
	r := s.Run(script, "--preset", "full-access", "--view", "/conf", "--ask-hook", "echo allow project", "--env", "RULES="+rules)
	wantCode(t, r, 0)
	if !strings.HasPrefix(r.Stdout, "text\n") || strings.Contains(r.Stdout, "pattern") || strings.Contains(r.Stdout, "sandboxes") {
		t.Errorf("inside: %s", r.Stdout)
	}
	want, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(want), `{pattern: "/conf", permission: read, type: file}`) {
		t.Fatalf("%v: %s", err, want)
	}
	s.Agentfense("apply", s.Name, "--latest")
	if got, err := os.ReadFile(file); err != nil || string(got) != string(want) {
		t.Errorf("the rules were changed: %v: %s", err, got)
	}
	wantCode(t, s.Agentfense("rm", "--force", s.Name), 0)
	// Another sandbox of the project has what was answered, and not more.
	r = s.Run("cat conf; echo x >>conf || echo refused")
	wantCode(t, r, 0)
	if r.Stdout != "text\nrefused\n" {
		t.Errorf("a later sandbox: %s", r.Stdout)
	}
}
