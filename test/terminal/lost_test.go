package terminal_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// A directory that was made again in the source's place becomes the source if the
// person says so, and not otherwise.
func TestADirectoryMadeAgainIsAskedFor(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"project/old": "old\n"})
	project := filepath.Join(s.Source, "project")
	if r := s.Run("echo new > new", "--dir", project, "--preset", "full-access"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	if err := os.RemoveAll(project); err != nil {
		t.Fatal(err)
	}
	s.Write("project/old", "another\n")
	for _, c := range []struct {
		answer string
		code   int
	}{{"\n", 1}, {"n\n", 1}, {"y\n", 0}} {
		screen := start(t, s, "apply", s.Name)
		screen.expect("another one at its path")
		screen.expect("Take the directory that is there now? [y/N]")
		screen.send(c.answer)
		if code := screen.end(); code != c.code {
			t.Errorf("after %q: exit code %d, want %d", c.answer, code, c.code)
		}
		_, err := os.Lstat(filepath.Join(project, "new"))
		if applied := err == nil; applied != (c.code == 0) {
			t.Errorf("after %q: applied is %v", c.answer, applied)
		}
	}
	if text := s.Read("project/old"); text != "another\n" {
		t.Errorf("old holds %q", text)
	}
}
