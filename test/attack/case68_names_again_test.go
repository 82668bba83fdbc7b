package attack_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// No name is another sandbox's id, or leads out of the state directory.
func TestNamesAreNoIDs(t *testing.T) {
	s := harness.New(t, binary, nil)
	prints(t, s, "echo kept", "kept\n")
	id := inspect(t, s, s.Name).Record.ID
	for _, name := range []string{id, "sb_0123456789abcdef", strings.ToUpper(s.Name), "..", "../" + s.Name, s.Name + "/", "-x", "a b", "a\nb", strings.Repeat("a", 300)} {
		wantCode(t, s.Agentfense("create", "--", name), 125)
	}
	if r := s.Agentfense("create", s.Name); r.Code == 0 {
		t.Error("a second sandbox was made under one name")
	}
	if got := inspect(t, s, id).Record.Name; got != s.Name {
		t.Errorf("the id leads to %q", got)
	}
}

// A sandbox that gets the name of a removed one has nothing of it: no changes, no rules, no log.
func TestANameIsUsedAgain(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"a": "a\n"}, who...)
		prints(t, s, "echo secret > left; rm a; echo first", "first\n", "--preset", "full-access", "--env", "TOKEN=secret")
		first := inspect(t, s, s.Name).Record
		agentfense(t, s, "rm", s.Name, "--force")
		r := s.Run("ls; echo $TOKEN; touch new", "--read", "**")
		if r.Stdout != "a\n\n" || r.Code == 0 {
			t.Errorf("exit code %d, %q", r.Code, r.Stdout)
		}
		second := inspect(t, s, s.Name).Record
		if second.ID == first.ID {
			t.Error("the id is used again")
		}
		if log := agentfense(t, s, "audit", s.Name, "--json"); strings.Contains(log, first.ID) || strings.Contains(log, "left") {
			t.Errorf("the log of the second tells of the first:\n%s", log)
		}
		agentfense(t, s, "audit", first.ID, "--verify")
	})
}

// A lock file that is left over, and names a process that is another one by now, holds nothing and
// ends nobody.
func TestAStaleLockNamesAnotherProcess(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"a": "a\n"}, who...)
		prints(t, s, "cat a", "a\n")
		other := exec.Command("sleep", "600")
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = other.Process.Kill()
			_ = other.Wait() // it was killed
		}()
		lock := filepath.Join(s.Home, "sandboxes", s.Name, "lock")
		text, err := json.Marshal(map[string]any{"pid": other.Process.Pid, "purpose": "supervisor"})
		if err == nil {
			err = os.WriteFile(lock, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := inspect(t, s, s.Name).Status; got != "stopped" {
			t.Errorf("the sandbox is %s", got)
		}
		s.Agentfense("stop", s.Name) // it has nothing to stop
		prints(t, s, "cat a", "a\n")
		agentfense(t, s, "rm", s.Name, "--force")
		if !hasLive(other.Process.Pid) {
			t.Error("the other process has ended")
		}
		if exists(lock) {
			t.Error("the lock file is left")
		}
	})
}
