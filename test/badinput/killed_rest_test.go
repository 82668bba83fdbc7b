package badinput_test

import (
	"os"
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
