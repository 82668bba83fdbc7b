package terminal_test

import (
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// On a terminal, lock --wait says that it waits.
func TestLockSaysThatItWaits(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"a": "old\n"})
	for _, args := range [][]string{
		{"run", "--preset", "full-access", "--name", s.Name, "--detach"},
		{"run", "--preset", "full-access", "--name", "other", "--detach"},
		{"lock", "other", "a"},
	} {
		if r := s.Agentfense(args...); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
	}
	screen := start(t, s, "lock", s.Name, "a", "--wait")
	screen.expect("waiting for locks of other sandboxes")
	if r := s.Agentfense("stop", "other"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	screen.expect("has locked /a")
	if code := screen.end(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if r := s.Agentfense("stop", s.Name); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
}
