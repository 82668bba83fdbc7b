package terminal_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestReviewOnAServer reviews a sandbox of a server on the screen, while it goes on changing files:
// what is staged and applied comes into the directory that was uploaded, and nothing else does.
func TestReviewOnAServer(t *testing.T) {
	s := onServer(t)
	for _, name := range []string{"kept", "dropped"} {
		if err := os.WriteFile(filepath.Join(s.Source, name), []byte("old\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if r := s.Agentfense("run", "--name", s.Name, "--preset", "full-access", "--", "sh", "-c", "echo new >file; echo new >kept; echo new >dropped"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	endpoint := os.Getenv("AGENTFENSE_ENDPOINT")
	t.Setenv("AGENTFENSE_ENDPOINT", "")
	e := emulate(t, s, "review", s.Name, "--endpoint", endpoint)
	t.Setenv("AGENTFENSE_ENDPOINT", endpoint)
	e.shows("3 changes · 0 staged")
	e.press("g", "j", "j", "Space")
	e.shows("[x] M file")
	e.shows("│ file")
	e.shows("+new")
	e.press("j", "Space")
	e.shows("2 staged")
	if r := s.Agentfense("exec", s.Name, "--", "sh", "-c", "echo NEW >kept; echo more >made"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	e.shows("[!] M kept") // it is no longer what was staged
	e.shows("4 changes · 1 staged")
	e.press("A")
	e.shows("Apply 1 staged change? [y/N]")
	e.press("y")
	e.shows("Applied 1 change")
	e.shows("3 changes · 0 staged")
	e.press("g", "j")
	e.shows("│ dropped")
	e.press("d")
	e.shows("Discard dropped?")
	e.press("y")
	e.shows("2 changes · 0 staged")
	e.press("q")
	e.shows("ended 0")
	for name, want := range map[string]string{"file": "new\n", "kept": "old\n", "dropped": "old\n", "made": ""} {
		got, err := os.ReadFile(filepath.Join(s.Source, name))
		if string(got) != want || err != nil && want != "" {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
		}
	}
	if got := s.Agentfense("diff", s.Name, "--name-status").Stdout; got != "M\tkept\nA\tmade\n" {
		t.Errorf("what waits: %q", got)
	}
}
