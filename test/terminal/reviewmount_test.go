package terminal_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// TestReviewOfAMount reviews what a command changed in a mount. A file that changed in the source,
// too, is a conflict that stops the apply.
func TestReviewOfAMount(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"file": "x\n"})
	data := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(data, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name, want string) {
		t.Helper()
		if got, err := os.ReadFile(filepath.Join(data, name)); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
		}
	}
	write("both", "old\n")
	write("one", "old\n")
	if out, err := s.Command(t.Context(), "run", "--name", "fix", "--preset", "full-access", "--mount", data+",dst=/data,name=data,mode=cow", "--",
		"sh", "-c", "echo inside >/data/both; echo inside >/data/one; echo in the workspace >file").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	write("both", "outside\n")
	e := emulate(t, s, "review", "fix", "--in", "data")
	e.shows("review fix in data · 2 changes · 0 staged")
	e.shows("M data:/both  conflict: the sou")
	e.shows("M data:/one")
	e.press("*")
	e.shows("2 staged")
	e.press("A")
	e.shows("Apply 2 staged changes? [y/N]")
	e.press("y")
	e.shows("conflict: data:/both")
	read("both", "outside\n")
	read("one", "old\n")
	e.press("Enter")
	e.shows("[x] M data:/one")
	e.press("-")
	e.shows("0 staged")
	e.press("G", "Space")
	e.shows("[x] M data:/one")
	e.press("A", "y")
	e.shows("Applied 1 change")
	e.shows("1 change · 0 staged")
	read("one", "inside\n")
	read("both", "outside\n")
	e.press("q")
	e.shows("ended 0")
	if text := s.Read("file"); text != "x\n" {
		t.Errorf("the workspace has %q", text)
	}
}
