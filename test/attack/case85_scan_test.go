package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// policy scan reads a directory that a stranger has filled: no link leads it out,
// nothing blocks it, no name steers the terminal, and it prints no secret.
func TestScanOfAHostileDirectory(t *testing.T) {
	secret := "gh" + "p_" + "a8Kd93JfLs02mZxQwE71vBnTyUiOp45RtGh6"
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "notes"), []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	s := harness.New(t, binary, map[string]string{"a\x1b[31m.txt": "see " + secret + "\n", "plain": "plain"})
	for link, target := range map[string]string{"file": filepath.Join(outside, "notes"), "dir": outside, "loop": ".", "up": ".."} {
		if err := os.Symlink(target, filepath.Join(s.Source, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(s.Source, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, {"--json"}} {
		got := s.Agentfense(append([]string{"policy", "scan", s.Source, "--preset", "development"}, flags...)...)
		wantCode(t, got, 0)
		out := got.Stdout + got.Stderr
		if strings.Contains(out, secret) || strings.Contains(out, "\x1b") || strings.Contains(out, outside) {
			t.Errorf("scan printed a secret, an escape or a path outside:\n%q", out)
		}
		if !strings.Contains(got.Stdout, "GitHub token") {
			t.Errorf("scan did not find the token:\n%s", got.Stdout)
		}
	}
}
