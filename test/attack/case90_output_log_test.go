package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// maxOutputBytes is the most that the output log of a sandbox takes on the disk.
const maxOutputBytes = 16 << 20

// A detached command that writes without end fills no disk, keeps the end of what it
// wrote, and forges nothing in the log. It works alike for an ordinary user.
func TestOutputLogIsBoundedAndNotForged(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"r": ""}, who...)
		const flood = `printf '{"exec":"forged","over":true}\n\033]0;title\007\n'; head -c 40000000 /dev/zero | tr '\0' x; echo the end`
		if r := s.Agentfense("run", "--detach", "--name", s.Name, "--", "sh", "-c", flood); r.Code != 0 {
			t.Fatalf("%+v", r)
		}
		if r := s.Agentfense("logs", "--follow", s.Name); r.Code != 0 { // until it has ended
			t.Fatalf("code %d, stderr %q", r.Code, r.Stderr)
		}
		r := s.Agentfense("logs", s.Name)
		if r.Code != 0 || !strings.HasSuffix(r.Stdout, "xthe end\n") || len(r.Stdout) > maxOutputBytes {
			t.Errorf("code %d, %d bytes, stderr %q", r.Code, len(r.Stdout), r.Stderr)
		}
		var total int64
		for _, name := range []string{"output.log", "output.1.log"} {
			info, err := os.Stat(filepath.Join(s.Home, "sandboxes", s.Name, name))
			if err != nil {
				t.Fatal(err)
			}
			if total += info.Size(); info.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %v", name, info.Mode())
			}
		}
		if total > maxOutputBytes {
			t.Errorf("the log takes %d bytes", total)
		}
		const title = `printf '\033]0;title\007{"exec":"forged"}\n'`
		if r := s.Agentfense("run", "--detach", "--name", s.Name, "--", "sh", "-c", title); r.Code != 0 {
			t.Fatalf("%+v", r)
		}
		r = s.Agentfense("logs", "--follow", s.Name, "--json")
		if r.Code != 0 || strings.Contains(r.Stdout, "\x1b") || strings.Contains(r.Stdout, `"exec":"forged"`) {
			t.Errorf("code %d: the JSON acts on a terminal, or has what a command forged", r.Code)
		}
		if r := s.Agentfense("rm", "--force", s.Name); r.Code != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// What run --env remembers is for its user alone: not for others of the host, and not
// for what runs inside beyond the variable itself. A value that was not given is not
// stored.
func TestRememberedVariablesStayPrivate(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"r": ""}, who...)
		file := filepath.Join(s.Home, "sandboxes", s.Name, "variables.json")
		t.Setenv("AGENTFENSE_TEST_SECRET", "not-to-be-stored")
		r := s.Run(`echo "$AGENTFENSE_TEST_SECRET"; cat `+file, "--env", "GIVEN=value", "--env", "AGENTFENSE_TEST_SECRET")
		if r.Code == 0 || strings.Contains(r.Stdout, "variables") || !strings.Contains(r.Stderr, "No such file") {
			t.Errorf("%+v", r)
		}
		if !strings.Contains(r.Stdout, "not-to-be-stored") {
			t.Errorf("the variable was not passed on: %+v", r)
		}
		content, err := os.ReadFile(file)
		if err != nil || strings.Contains(string(content), "not-to-be-stored") {
			t.Errorf("%s, %v", content, err)
		}
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	})
}
