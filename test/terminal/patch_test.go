package terminal_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

func TestApplyHunkByHunk(t *testing.T) {
	text := func(five, thirty string) string {
		lines := strings.Split(strings.Repeat("line\n", 40), "\n")
		lines[5], lines[30] = five, thirty
		return strings.Join(lines, "\n")
	}
	s := harness.New(t, binary, map[string]string{"a.txt": text("five", "thirty"), "b.txt": "old\n"})
	if out, err := s.Command(t.Context(), "run", "--preset", "full-access", "--name", "fix", "--", "sh", "-c",
		`sed -i 's/five/FIVE/; s/thirty/THIRTY/' a.txt; echo new >b.txt`).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	interrupted := start(t, s, "apply", "fix", "-p")
	interrupted.expect("(1/2) Apply this hunk [y,n,q,a,d,j,k,?]?")
	interrupted.send("y\n")
	interrupted.expect("(2/2)")
	interrupted.send("\x03")
	interrupted.exits(-1)

	sc := start(t, s, "apply", "fix", "--patch")
	sc.expect("-five")
	sc.expect("(1/2)")
	sc.send("n\n")
	sc.expect("+THIRTY")
	sc.expect("(2/2)")
	sc.send("y\n")
	sc.expect("diff --git a/b.txt")
	sc.expect("(1/1)")
	if out, err := s.Command(t.Context(), "exec", "fix", "--", "sh", "-c", "echo NEW >b.txt").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	sc.send("y\n")
	sc.expect("changed_since_review\tM\tb.txt")
	sc.expect("applied\tM\ta.txt\t1 of 2 hunks")
	sc.expect("applied 1 change")
	sc.exits(3)
	for file, want := range map[string]string{"a.txt": text("five", "THIRTY"), "b.txt": "old\n"} {
		if got, err := os.ReadFile(filepath.Join(s.Source, file)); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v; want %q", file, got, err, want)
		}
	}
	if out := s.Agentfense("diff", "fix", "a.txt").Stdout; !strings.Contains(out, "-five\n+FIVE") || strings.Contains(out, "+THIRTY") {
		t.Errorf("the rest is not what was not chosen:\n%s", out)
	}
}

func TestReviewStagesHunks(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Fatal("tmux is needed: scripts/setup installs it")
	}
	lines := "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n"
	s := harness.New(t, binary, map[string]string{"a.txt": lines, "b.txt": "old\n"})
	if out, err := s.Command(t.Context(), "run", "--preset", "full-access", "--name", "fix", "--", "sh", "-c",
		`echo new >b.txt; sed -i '1s/.*/first/; 12s/.*/last/' a.txt`).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	e := emulate(t, s, "review", "fix")
	e.shows("[ ] @@ -1,4 +1,4 @@")
	e.press("Tab", "]", "Space")
	e.shows("[~] M a.txt")
	e.shows("[x] @@ -9,4 +9,4 @@")
	e.press("A")
	e.shows("Apply 1 staged change? [y/N]")
	e.press("y")
	e.shows("Applied 1 change")
	e.shows("[ ] @@ -1,4 +1,4 @@")
	e.press("q")
	want := strings.Replace(lines, "12", "last", 1)
	if got, err := os.ReadFile(filepath.Join(s.Source, "a.txt")); err != nil || string(got) != want {
		t.Errorf("a.txt: got %q, %v; want %q", got, err, want)
	}
}
