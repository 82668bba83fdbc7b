package badinput_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// After the commit of an apply that is killed, a restore or a discard takes the applied entries out
// of the delta. The sandbox has not removed them: the next command hides and removes nothing.
func TestWhatARestoreTakesOutAfterAKilledApplyIsNoRemoval(t *testing.T) {
	const change = `echo new > f; echo made > made; mkdir dir; echo in > dir/in; rm gone`
	takeOut := map[string]func(*testing.T, *harness.Sandbox){
		"restore": func(t *testing.T, s *harness.Sandbox) {
			wantCode(t, s.Agentfense("restore", s.Name, "s1"), 0)
		},
		"a discard without the source": func(t *testing.T, s *harness.Sandbox) {
			source := s.Source
			s.Source = t.TempDir() // where the command runs
			if err := os.Rename(source, source+" too"); err != nil {
				t.Fatal(err)
			}
			wantCode(t, s.Agentfense("discard", s.Name), 0)
			s.Source = source
			if err := os.Rename(source+" too", source); err != nil {
				t.Fatal(err)
			}
		},
	}
	for how, does := range takeOut {
		for _, running := range []bool{false, true} {
			name := how
			if running {
				name += ", of a running sandbox"
			}
			t.Run(name, func(t *testing.T) {
				s := harness.New(t, binary, map[string]string{"f": "old\n", "gone": "old\n"})
				wantCode(t, s.Run("true", "--preset", "full-access"), 0)
				wantCode(t, s.Agentfense("snapshot", s.Name), 0)
				if running {
					wantCode(t, s.Agentfense("run", "--detach", "--name", s.Name, "--", "sleep", "600"), 0)
					wantCode(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", change), 0)
				} else {
					wantCode(t, s.Run(change), 0)
				}
				s.KilledAt("journal: committed", "apply", s.Name, "--latest")
				if running {
					wantCode(t, s.Agentfense("stop", s.Name), 0)
				}
				want := stateOf(t, s)
				does(t, s)
				if r := s.Run("cat f made dir/in"); r.Code != 0 || r.Stdout != "new\nmade\nin\n" {
					t.Errorf("exit code %d, the sandbox shows %q\n%s", r.Code, r.Stdout, r.Stderr)
				}
				if delta := deltaOf(t, s, "--name-status"); delta != "" {
					t.Errorf("the sandbox has the changes\n%s", delta)
				}
				wantCode(t, s.Agentfense("apply", s.Name), 0)
				if now := stateOf(t, s); now != want {
					t.Errorf("applied:\n%s\nwant:\n%s", now, want)
				}
				if n := strings.Count(s.Agentfense("audit", s.Name, "--json").Stdout, `"event":"applied"`); n != 1 {
					t.Errorf("the log has %d records of an apply, want 1", n)
				}
			})
		}
	}
}

// What remains to be done after a killed apply is done before a restore: it does not take the
// applied version out of the state that is restored.
func TestARestoreAfterAKilledApplyRestoresTheState(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"f": "old\n"})
	wantCode(t, s.Run("echo new > f", "--preset", "full-access"), 0)
	wantCode(t, s.Agentfense("snapshot", s.Name), 0)
	s.KilledAt("journal: committed", "apply", s.Name)
	s.Write("f", "a person's\n")
	wantCode(t, s.Agentfense("restore", s.Name, "s1"), 0)
	if r := s.Run("cat f"); r.Code != 0 || r.Stdout != "new\n" {
		t.Errorf("exit code %d, the sandbox shows %q\n%s", r.Code, r.Stdout, r.Stderr)
	}
	if got := s.Read("f"); got != "a person's\n" {
		t.Errorf("the source has %q", got)
	}
}

// tempsOf returns the temporary files in the source.
func tempsOf(t *testing.T, s *harness.Sandbox) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.Source, ".agentfense-*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// An apply is killed between the exchange of a file and the move of its previous version to the
// history. If a person then changes the path, that version is kept in the history.
func TestAPreviousVersionThatIsNotRestoredIsKept(t *testing.T) {
	for point, change := range map[string]string{"sync: swapped": "echo new > f", "sync: moved away": "rm f"} {
		for how, edit := range map[string]func(*harness.Sandbox) error{
			"edits it": func(s *harness.Sandbox) error { return os.WriteFile(s.Source+"/f", []byte("a person's\n"), 0o644) },
			"makes a link": func(s *harness.Sandbox) error {
				return errors.Join(os.RemoveAll(s.Source+"/f"), os.Symlink("/", s.Source+"/f"))
			},
			"makes a directory": func(s *harness.Sandbox) error {
				return errors.Join(os.RemoveAll(s.Source+"/f"), os.Mkdir(s.Source+"/f", 0o755))
			},
		} {
			t.Run(point+", a person "+how, func(t *testing.T) {
				s := harness.New(t, binary, map[string]string{"f": "old\n"})
				wantCode(t, s.Run(change, "--preset", "full-access"), 0)
				s.KilledAt(point, "apply", s.Name)
				if err := edit(s); err != nil {
					t.Fatal(err)
				}
				if said := appliesNothing(t, s); !strings.Contains(said, "not restored: f: it has changed since") {
					t.Errorf("said %q", said)
				}
				if left := tempsOf(t, s); len(left) > 0 {
					t.Errorf("the source has %q", left)
				}
				images, err := filepath.Glob(filepath.Join(s.Home, "history", "*", "*", "images", "*"))
				if err != nil || len(images) != 1 {
					t.Fatalf("the history keeps %q: %v", images, err)
				}
				if kept, err := os.ReadFile(images[0]); err != nil || string(kept) != "old\n" {
					t.Errorf("the history keeps %q, %v", kept, err)
				}
			})
		}
	}
}

// An apply is killed when it has taken out a version that a person saved after its check.
func TestARollBackPutsBackAVersionThatWasNotExpected(t *testing.T) {
	for point, change := range map[string]string{"sync: swapped": "echo new > f", "sync: moved away": "rm f"} {
		t.Run(point, func(t *testing.T) {
			s := harness.New(t, binary, map[string]string{"f": "old\n"})
			wantCode(t, s.Run(change, "--preset", "full-access"), 0)
			s.KilledAt(point, "apply", s.Name)
			s.Write("saved", "a person's\n")
			if temps := tempsOf(t, s); len(temps) != 1 || os.Rename(s.Source+"/saved", temps[0]) != nil {
				t.Fatalf("the source has %q", temps)
			}
			if said := appliesNothing(t, s); !strings.Contains(said, "not restored: f: it has changed since") {
				t.Errorf("said %q", said)
			}
			if got := s.Read("f"); got != "a person's\n" || len(tempsOf(t, s)) > 0 {
				t.Errorf("the source has %q and %q", got, tempsOf(t, s))
			}
		})
	}
}

// The audit log has one record of an undo that is killed after its commit.
func TestAKilledUndoIsInTheAuditLog(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"f": "old\n"})
	wantCode(t, s.Run("echo new > f", "--preset", "full-access"), 0)
	for i, point := range []string{"journal: committed", "settle: told", "settle: dropped", "undo: told"} {
		wantCode(t, s.Run("echo new > f"), 0)
		wantCode(t, s.Agentfense("apply", s.Name), 0)
		s.KilledAt(point, "undo", s.Name, "--yes")
		wantCode(t, s.Run("true"), 0)
		if n := strings.Count(s.Agentfense("audit", s.Name, "--json").Stdout, `"event":"undone"`); n != i+1 {
			t.Errorf("killed at %q: the log has %d records of an undo, want %d", point, n, i+1)
		}
		if got := s.Read("f"); got != "old\n" {
			t.Errorf("killed at %q: the source has %q", point, got)
		}
	}
}
