package badinput_test

import (
	"os"
	"slices"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// An apply that merges, and is killed at any step, leaves the source's version or the merged one.
// The next apply never merges again what has been merged: the line would be there a third time.
func TestAKilledMergeIsAllOrNothing(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"f": ""})
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(s.Source+"/f", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const mine, merged = "a\nb\n", "a\nb\nb\n"
	committed := []string{"journal: committed", "sync: settled", "sync: told", "sync: dropped"}
	points := append([]string{
		"journal: made", "journal: ready", "sync: intended", "journal: placing", "sync: staged", "sync: swapped", "journal: taken", "sync: one placed",
	}, committed...)
	for _, point := range points {
		write("b\n")
		wantCode(t, s.Run(`printf 'b\nb\n' > f; echo more > other`, "--preset", "full-access"), 0)
		write(mine)
		s.KilledAt(point, "apply", s.Name, "f")
		appliesNothing(t, s)
		want := mine
		if slices.Contains(committed, point) {
			want = merged
		}
		if got := s.Read("f"); got != want {
			t.Fatalf("killed at %q: f is %q, want %q", point, got, want)
		}
		wantCode(t, s.Agentfense("apply", s.Name), 0)
		if got := s.Read("f"); got != merged {
			t.Fatalf("applied after the kill at %q: f is %q, want %q", point, got, merged)
		}
		if r := s.Agentfense("diff", s.Name, "--name-status"); r.Stdout != "" {
			t.Errorf("killed at %q: left %q", point, r.Stdout)
		}
		if err := os.Remove(s.Source + "/other"); err != nil {
			t.Fatal(err)
		}
	}
}
