package terminal_test

import (
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// On a terminal, discard names what it would throw away, and only a yes throws it away.
func TestDiscardAsks(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"a": "old\n"})
	if r := s.Run("echo new > a; echo 1 > b", "--preset", "full-access"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	for _, c := range []struct {
		args   []string
		answer string
		code   int
	}{
		{args: []string{s.Name}, answer: "\n", code: 1},
		{args: []string{s.Name}, answer: "n\n", code: 1},
		{args: []string{s.Name, "a"}, answer: "y\n"},
		{args: []string{s.Name, "--yes"}},
		{args: []string{s.Name}}, // nothing is left to ask for
	} {
		screen := start(t, s, append([]string{"discard"}, c.args...)...)
		if c.answer != "" {
			screen.expect("  a\r\n")
			screen.expect("Discard ")
			screen.expect("? [y/N]")
			screen.send(c.answer)
		}
		if code := screen.end(); code != c.code {
			t.Errorf("discard %q, answer %q: exit code %d, want %d", c.args, c.answer, code, c.code)
		}
		if c.code != 0 {
			if r := s.Agentfense("exec", s.Name, "--", "cat", "a", "b"); r.Stdout != "new\n1\n" {
				t.Errorf("discard %q, answer %q: the sandbox has %q", c.args, c.answer, r.Stdout)
			}
		}
	}
	if r := s.Agentfense("exec", s.Name, "--", "sh", "-c", "cat a; test ! -e b"); r.Code != 0 || r.Stdout != "old\n" {
		t.Errorf("after all: the sandbox has %q, exit code %d", r.Stdout, r.Code)
	}
}
