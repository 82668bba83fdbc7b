package terminal_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// TestProgress holds the audit log, for which apply, discard and rm wait, so
// that they take as long as it needs to see them wait.
func TestProgress(t *testing.T) {
	tests := []struct {
		args []string
		want []string
	}{
		{[]string{"apply", "attack", "a"}, []string{"\ragentfense: applying, ", " s, 1 of 1"}},
		{[]string{"discard", "--yes", "attack"}, []string{"\ragentfense: discarding, "}},
		{[]string{"rm", "attack"}, []string{"\ragentfense: removing attack, "}},
	}
	s := harness.New(t, binary, map[string]string{"a": "1", "b": "1"})
	if r := s.Run("echo 2 >a; echo 2 >b", "--preset", "full-access"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	for _, tt := range tests {
		t.Run(tt.args[0], func(t *testing.T) {
			release := holdLog(t, s)
			sc := start(t, s, tt.args...)
			for _, text := range tt.want {
				sc.expect(text)
			}
			release()
			sc.exits(0)
			sc.mu.Lock()
			shown := sc.shown.String()
			sc.mu.Unlock()
			if _, rest, _ := strings.Cut(shown, tt.want[0]); !regexp.MustCompile(`\r +\r`).MatchString(rest) {
				t.Errorf("the line was not taken away: %q", shown)
			}
		})
	}
}

func holdLog(t *testing.T, s *harness.Sandbox) (release func()) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(s.Home, "audit", "*.jsonl"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs %q, %v", logs, err)
	}
	f, err := os.Open(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return func() { f.Close() }
}
