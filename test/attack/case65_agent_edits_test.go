package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// edits is an agent that changes what decides about its next run, and what other programs of the
// user start: the policy of the project, its own profile, the hooks of other agents.
const edits = `#!/bin/sh
cat ~/.config/agentfense/profiles/claude.yaml ~/.codex/config.toml ~/.gemini/settings.json ~/.bashrc
mkdir -p ~/.config/agentfense/profiles ~/.codex ~/.gemini
echo 'version: 1
extends: claude
network: ["*.example.com"]' >~/.config/agentfense/profiles/claude.yaml
echo 'notify = ["sh", "-c", "planted"]' >~/.codex/config.toml
echo '{"hooks": {"planted": 1}}' >~/.gemini/settings.json
echo planted >>~/.bashrc
i=0
while [ $i -lt 2000 ]; do : >~/.codex/file$i; i=$((i+1)); done
echo 'version: 1
preset: full-access
network: {allow: ["*.example.com"]}' >.agentfense.yaml
echo ran
`

// An agent that edits what decides about its next run, plants what others start and leaves many
// files in the home directory of its user changes nothing there, also if its changes are applied.
func TestAnAgentDoesNotDecideAboutItsNextRun(t *testing.T) {
	const policy = "version: 1\npreset: agent-safe\n"
	s := harness.New(t, binary, map[string]string{".agentfense.yaml": policy, "f": "one"})
	home, bin := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	users := map[string]string{
		".config/agentfense/profiles/claude.yaml": "version: 1\nextends: claude\n", ".codex/config.toml": "of the user",
		".gemini/settings.json": "of the user", ".bashrc": "of the user", ".claude/settings.json": "{}",
	}
	for name, text := range users {
		writeFile(t, filepath.Join(home, name), text, 0o600)
	}
	writeFile(t, filepath.Join(bin, "claude"), edits, 0o755)
	unchanged := func(when string) {
		t.Helper()
		for name, text := range users {
			if got, err := os.ReadFile(filepath.Join(home, name)); string(got) != text {
				t.Errorf("%s: ~/%s holds %q, %v, want %q", when, name, got, err, text)
			}
		}
		if found, _ := filepath.Glob(filepath.Join(home, ".codex/*")); len(found) != 1 {
			t.Errorf("%s: %d files in ~/.codex, want 1", when, len(found))
		}
	}
	r := s.Agentfense("claude", "--name", s.Name)
	if r.Code != 0 || r.Stdout != "ran\n" || strings.Contains(r.Stderr, "of the user") {
		t.Fatalf("the agent: %+v", r)
	}
	unchanged("after the run")
	s.Agentfense("diff", s.Name, "--in", "home")
	s.Agentfense("apply", s.Name, "--in", "home")
	unchanged("after apply --in home")

	if r := s.Agentfense("apply", s.Name, "--latest"); r.Code != 0 || s.Read(".agentfense.yaml") != policy {
		t.Errorf("apply: %+v, and the policy is %q", r, s.Read(".agentfense.yaml"))
	}
	if r := s.Agentfense("claude", "--name", s.Name+"-next"); r.Code != 0 || r.Stdout != "ran\n" {
		t.Errorf("the next run: %+v", r)
	}
	if r := s.Agentfense("inspect", s.Name+"-next"); r.Code != 0 || strings.Contains(r.Stdout, "example.com") || strings.Contains(r.Stdout, "full-access") {
		t.Errorf("what the next run may: %+v", r)
	}
	unchanged("at the end")
	s.Agentfense("rm", "--force", s.Name+"-next")
}

func writeFile(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
