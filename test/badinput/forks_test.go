package badinput_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// A fork of a fork has all changes when both sandboxes before it are removed: it runs, is compared,
// restored, forked, merged, applied and undone. When the last one is removed, nothing is left.
func TestAForkOfAForkOfARemovedSandbox(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"f": "source\n"})
	wantCode(t, s.Run("echo 1 > f; echo first > first", "--preset", "full-access"), 0)
	wantCode(t, s.Agentfense("fork", s.Name, "child"), 0)
	wantCode(t, s.Agentfense("exec", "child", "--", "sh", "-c", "echo 2 > f; echo second > second"), 0)
	wantCode(t, s.Agentfense("fork", "child", "grandchild"), 0)
	wantCode(t, s.Agentfense("rm", "--force", s.Name, "child"), 0)
	prints(t, s.Agentfense("exec", "grandchild", "--", "sh", "-c", "cat f first second; echo 3 > f; rm first"), "2\nfirst\nsecond\n")
	prints(t, s.Agentfense("diff", "grandchild", "--name-status"), "M\tf\nA\tsecond\n")
	wantCode(t, s.Agentfense("snapshot", "grandchild", "later"), 0)
	wantCode(t, s.Agentfense("fork", "grandchild", "last"), 0)
	wantCode(t, s.Agentfense("exec", "last", "--", "sh", "-c", "echo merged > merged"), 0)
	wantCode(t, s.Agentfense("merge", "last", "--into", "grandchild"), 0)
	wantCode(t, s.Agentfense("rm", "--force", "last"), 0)
	prints(t, s.Agentfense("diff", "grandchild@later", "grandchild", "--name-status"), "A\tmerged\n")
	wantCode(t, s.Agentfense("restore", "grandchild", "later"), 0)
	wantCode(t, s.Agentfense("apply", "grandchild"), 0)
	if got := s.Read("f") + s.Read("second"); got != "3\nsecond\n" {
		t.Errorf("applied %q", got)
	}
	wantCode(t, s.Agentfense("undo", "grandchild", "--yes"), 0)
	if got := s.Read("f"); got != "source\n" {
		t.Errorf("undone, f holds %q", got)
	}
	wantCode(t, s.Agentfense("rm", "--force", "grandchild"), 0)
	if left := leftIn(t, filepath.Join(s.Home, "frozen")); left != "" {
		t.Errorf("layers are left: %s", left)
	}
}

// An apply for the journal of which the disk has some room or none does all or nothing.
func TestAnApplyOnADiskThatItsJournalFills(t *testing.T) {
	const files = 200
	s := harness.New(t, binary, map[string]string{"d/": ""})
	for i := range files {
		s.Write(fmt.Sprintf("d/%d", i), "old\n")
	}
	d := mountDiskOf(t, s.Home, 60<<20)
	wantCode(t, s.Run("for f in d/*; do echo new > $f; done", "--preset", "full-access"), 0)
	before := stateOf(t, s)
	after := strings.ReplaceAll(before, "old\n", "new\n")
	failed := 0
	for _, room := range []int64{0, 4 << 10, 16 << 10, 64 << 10, 160 << 10} {
		d.onFull(s, "no space left on device", room, func(done bool) {
			if done {
				return
			}
			failed++
			if now := stateOf(t, s); now != before {
				t.Errorf("with room for %d bytes an apply that fails leaves:\n%s", room, now)
			}
		}, "apply", s.Name)
		if now := stateOf(t, s); now != after {
			t.Fatalf("with room for %d bytes the apply leaves:\n%s", room, now)
		}
		wantCode(t, s.Agentfense("undo", s.Name, "--yes"), 0)
		if now := stateOf(t, s); now != before {
			t.Fatalf("with room for %d bytes the undo leaves:\n%s", room, now)
		}
	}
	if failed == 0 {
		t.Error("no apply found the disk full")
	}
}
