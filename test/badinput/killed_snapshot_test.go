package badinput_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentfense/agentfense/test/harness"
)

// A snapshot, a restore, a fork, a partial discard or a removal that is killed at any step loses no
// state and leaves no half one: the verb can be repeated, and nothing stays when all is removed.
func TestKilledSnapshotsLoseNothing(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"f": "source\n", "g": "source\n"})
	shows := func(after, name, want string) {
		t.Helper()
		r := s.Agentfense("exec", name, "--", "sh", "-c", "cat f g")
		if r.Code != 0 || r.Stdout != want {
			t.Errorf("after %s %s shows %q, want %q: %s", after, name, r.Stdout, want, r.Stderr)
		}
	}
	wantCode(t, s.Run("echo 1 > f", "--preset", "full-access"), 0)
	for _, point := range []string{"freeze: prepared", "freeze: exchanged", "snapshot: frozen", "snapshot: listed"} {
		s.KilledAt(point, "snapshot", s.Name)
		shows(point, s.Name, "1\nsource\n")
		wantCode(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", "echo 1 > f"), 0) // there is something to freeze again
	}
	wantCode(t, s.Agentfense("snapshot", s.Name, "one"), 0)
	wantCode(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", "echo 2 > f; echo 2 > g"), 0)

	for _, point := range []string{"freeze: exchanged", "snapshot: listed", "restore: kept", "restore: rewound", "restore: done"} {
		wantCode(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", "echo 2 > f; echo 2 > g; echo '"+point+"' > h"), 0)
		s.KilledAt(point, "restore", s.Name, "one")
		ls := s.Agentfense("snapshot", "ls", s.Name)
		wantCode(t, s.Agentfense("restore", s.Name, "one"), 0)
		shows(point, s.Name, "1\nsource\n")
		found := false
		for line := range strings.Lines(s.Agentfense("snapshot", "ls", s.Name).Stdout) {
			ref, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			if !strings.Contains(line, "before restore of") || found {
				continue
			}
			wantCode(t, s.Agentfense("restore", s.Name, ref), 0)
			r := s.Agentfense("exec", s.Name, "--", "cat", "f", "g")
			found = r.Stdout == "2\n2\n"
		}
		if !found {
			t.Fatalf("after %s no snapshot has what was there before:\n%s", point, ls.Stdout)
		}
	}

	for _, point := range []string{"fork: frozen", "create sandbox: recorded", "create sandbox: logged", "fork: made"} {
		s.KilledAt(point, "fork", s.Name, "fork")
		shows(point, s.Name, "2\n2\n")
		wantCode(t, s.Agentfense("rm", "--force", "fork"), 0)
		wantCode(t, s.Agentfense("fork", s.Name, "fork"), 0)
		shows(point, "fork", "2\n2\n")
		wantCode(t, s.Agentfense("rm", "--force", "fork"), 0)
	}
	for _, point := range []string{"squash: copied", "squash: merged"} {
		s.KilledAt(point, "discard", s.Name, "g")
		shows(point, s.Name, "2\n2\n")
	}
	wantCode(t, s.Agentfense("discard", s.Name, "g"), 0)
	shows("a discard", s.Name, "2\nsource\n")
	for _, point := range []string{"snapshot: removed", "sweep: aside"} {
		wantCode(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", "echo "+strings.Fields(point)[0]+" > f"), 0)
		wantCode(t, s.Agentfense("snapshot", s.Name, "gone"), 0)
		wantCode(t, s.Agentfense("restore", s.Name, "one"), 0)
		s.KilledAt(point, "snapshot", "rm", s.Name, "gone")
		shows(point, s.Name, "1\nsource\n")
	}
	wantCode(t, s.Agentfense("rm", "--force", s.Name), 0)
	if left, err := os.ReadDir(filepath.Join(s.Home, "frozen")); err != nil || len(left) > 0 {
		t.Errorf("layers are left: %v, %v", left, err)
	}
}

// A sandbox that went back to a snapshot is in conflict with what it has applied since. The roll
// back of a killed undo does not hide that.
func TestAKilledUndoHidesNoConflict(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"f": "old\n"})
	wantCode(t, s.Run("echo one > f", "--preset", "full-access"), 0)
	wantCode(t, s.Agentfense("snapshot", s.Name, "one"), 0)
	wantCode(t, s.Run("echo two > f"), 0)
	wantCode(t, s.Agentfense("apply", s.Name), 0)
	wantCode(t, s.Agentfense("restore", s.Name, "one"), 0)
	s.KilledAt("sync: swapped", "undo", s.Name, "--yes")
	appliesNothing(t, s)
	if r := s.Agentfense("apply", s.Name, "--latest"); r.Code == 0 || s.Read("f") != "two\n" {
		t.Errorf("exit code %d, f holds %q, want it in conflict\n%s", r.Code, s.Read("f"), r.Stdout)
	}
}

// What an apply has placed stays in the source if it is killed while it takes the changes out of
// the layers of a snapshot.
func TestAKilledSquashTakesNothingBack(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"d/f": "old\n"})
	wantCode(t, s.Run("rm -r d; mkdir d; echo new > d/f; echo other > other", "--preset", "full-access"), 0)
	wantCode(t, s.Agentfense("snapshot", s.Name), 0)
	s.KilledAt("squash: copied", "apply", s.Name, "d")
	wantCode(t, s.Agentfense("apply", s.Name), 0)
	if got := s.Read("d/f") + s.Read("other"); got != "new\nother\n" {
		t.Errorf("the source has %q", got)
	}
}

// The roll back of a killed undo does not take an edit that only its ctime shows for what the
// sandbox has removed.
func TestAKilledUndoHidesNoEdit(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"f": "old\n"})
	wantCode(t, s.Run("echo new > f", "--preset", "full-access"), 0)
	wantCode(t, s.Agentfense("apply", s.Name), 0)
	wantCode(t, s.Run("rm f"), 0)
	file := filepath.Join(s.Source, "f")
	was, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(file, []byte("mine"), 0o644), os.Chtimes(file, time.Time{}, was.ModTime())); err != nil {
		t.Fatal(err)
	}
	s.KilledAt("sync: swapped", "undo", s.Name, "--yes")
	appliesNothing(t, s)
	if r := s.Agentfense("apply", s.Name, "--latest"); r.Code == 0 || s.Read("f") != "mine" {
		t.Errorf("exit code %d, want f in conflict\n%s", r.Code, r.Stdout)
	}
}

// A kill while frozen layers are copied into one leaves the names of a file names of one file.
func TestAKilledSquashSplitsNoFile(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"other": "old\n"})
	wantCode(t, s.Run("echo 1 > a; mkdir -p d/e; ln a d/e/b; ln a d/gone; echo new > other", "--preset", "full-access"), 0)
	wantCode(t, s.Agentfense("snapshot", s.Name), 0)
	wantCode(t, s.Run("rm d/gone; chmod 700 d"), 0)
	wantCode(t, s.Agentfense("snapshot", s.Name), 0)
	s.KilledAt("squash: directory copied", "discard", s.Name, "other")
	staysOne := func(after string) {
		t.Helper()
		r := s.Agentfense("exec", s.Name, "--", "sh", "-c", "echo 2 >> a; stat -c '%h %a' a d/e/b d; ls d; cmp a d/e/b")
		if want := "2 644\n2 644\n1 700\ne\n"; r.Code != 0 || r.Stdout != want {
			t.Errorf("after %s: exit code %d, %q, want %q: %s", after, r.Code, r.Stdout, want, r.Stderr)
		}
	}
	staysOne("a kill")
	wantCode(t, s.Agentfense("discard", s.Name, "other"), 0)
	staysOne("a discard")
}
