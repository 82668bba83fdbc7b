package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// `go install` of all commands gives both programs, and they are of one build.
func TestGoInstallGivesAProgramThatWorksWhole(t *testing.T) {
	bin := t.TempDir()
	install := exec.Command("go", "install", "github.com/agentfense/agentfense/cmd/...@latest")
	install.Dir = t.TempDir()
	install.Env = append(append(os.Environ(), proxy(t)...), "GOBIN="+bin)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for verb, want := range map[string]string{"version": "agentfense 0.0.1 (", "token ls": "NAME"} {
		cmd := exec.Command(filepath.Join(bin, "agentfense"), strings.Fields(verb)...)
		cmd.Env = append(ordinary(os.Environ()), "AGENTFENSE_HOME="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("agentfense %s: %v: %q, want %q", verb, err, out, want)
		}
	}
}
