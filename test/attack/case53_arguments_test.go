package attack_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// arguments prints what it was started with.
func init() {
	programs["arguments"] = func(args []string) int {
		if err := json.NewEncoder(os.Stdout).Encode(args); err != nil {
			return 1
		}
		return 0
	}
}

// A command's arguments arrive unchanged, whatever they mean to the programs in between.
func TestArgumentsArriveUnchanged(t *testing.T) {
	hostile := []string{
		"--", "-", "", "--rm", "--bind", "/", "/host", "--name", "x", "-c", "a b", "$(id)", "`id`", "; id", "| id", "*", "~",
		"line\nbreak", "tab\t", "\x1b[2J", "quote'\"", "back\\slash", "ünï", "__guest", "--args", "9", "=", "A=B",
	}
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"file": ""}, who...)
		r := s.RunProgram("arguments", hostile)
		wantCode(t, r, 0)
		var got []string
		if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil || !slices.Equal(got, hostile) {
			t.Errorf("inside: %q\nwant: %q (%v)", got, hostile, err)
		}
		executed := events(t, s, s.Name, "command_executed")
		if len(executed) != 1 {
			t.Fatalf("audit: %v", executed)
		}
		argv, ok := executed[0]["argv"].([]any)
		if !ok || len(argv) != len(hostile)+1 {
			t.Errorf("audit: argv = %v", executed[0]["argv"])
		}
		if r := s.Agentfense("audit", s.Name); strings.ContainsAny(r.Stdout, "\x1b\t") {
			t.Errorf("audit shows controls: %q", r.Stdout)
		}
	})
}

// A flag after the command's name belongs to the command. A flag before "--" is
// agentfense's and is refused if unknown, so that it cannot become a flag of bwrap.
func TestFlagsEndWithTheCommand(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"a": "a\n", "-n": "dash\n"})
	tests := []struct {
		name string
		args []string
		code int
		want string // of stdout
	}{
		{"flags after the command are its own", []string{"run", "--name", s.Name, "echo", "--rm", "--net", "host"}, 0, "--rm --net host\n"},
		{"a second dash-dash is the command's", []string{"run", "--name", s.Name, "--", "echo", "--", "x"}, 0, "-- x\n"},
		{"exec keeps them apart, too", []string{"exec", s.Name, "--", "echo", "--timeout", "1s"}, 0, "--timeout 1s\n"},
		{"a command that is a flag of bwrap is not found", []string{"run", "--name", s.Name, "--", "--bind", "/", "/"}, 127, ""},
		{"our hidden verbs are no commands inside", []string{"run", "--name", s.Name, "--", "__guest"}, 127, ""},
		{"an empty command is refused", []string{"run", "--name", s.Name, "--", ""}, 125, ""},
		{"an unknown flag is refused", []string{"run", "--name", s.Name, "--bind", "/", "--", "true"}, 125, ""},
		{"a file that begins with a dash is a file", []string{"files", "cat", s.Name, "--", "-n"}, 0, "dash\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := s.Agentfense(tt.args...)
			if r.Code != tt.code || r.Stdout != tt.want {
				t.Errorf("exit code %d, want %d; stdout %q, want %q\n%s", r.Code, tt.code, r.Stdout, tt.want, r.Stderr)
			}
		})
	}
}

// A sandbox's name cannot be a path, a flag or text that acts on a terminal.
func TestNamesAreChecked(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"a": "a\n"})
	wantCode(t, s.Run("echo changed > a", "--preset", "full-access"), 0)
	victim := filepath.Join(s.Home, "victim")
	if err := os.Mkdir(victim, 0o700); err != nil {
		t.Fatal(err)
	}
	id := inspect(t, s, s.Name).Record.ID
	before := homeTree(t, s)
	for _, name := range []string{
		"../victim", "..", ".", "", "a/b", "/tmp", "../../etc", "-rf", "--help=", "a\nb", "a\x1b[2J", "a b", "a\x00b"[:1] + "\t", "ä",
		strings.Repeat("n", 300), "sb_../../victim", "attack/../attack",
	} {
		for _, args := range [][]string{
			{"run", "--name=" + name, "--", "true"},
			{"create", "--", name},
			{"exec", "--", name, "true"},
			{"stop", "--", name},
			{"rm", "--", name},
			{"diff", "--", name},
			{"apply", "--", name},
			{"discard", "--", name},
			{"audit", "--", name},
			{"inspect", "--", name},
			{"files", "ls", "--", name, "/"},
		} {
			if name == "" && args[0] == "run" {
				continue // a generated name
			}
			r := s.Agentfense(args...)
			if r.Code == 0 || strings.ContainsRune(r.Stderr, '\x1b') {
				t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, r.Code, r.Stdout, r.Stderr)
			}
		}
	}
	if after := homeTree(t, s); !slices.Equal(before, after) {
		t.Errorf("the state directory changed:\n%q\nwas\n%q", after, before)
	}
	// A name that has the form of an id could stand for another sandbox.
	if r := s.Agentfense("create", id); r.Code == 0 {
		t.Errorf("create %s: a sandbox is called by the id of another", id)
	}
	if s.Read("a") != "a\n" {
		t.Error("the source changed")
	}
}

// homeTree lists the state directory.
func homeTree(t *testing.T, s *harness.Sandbox) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(s.Home, func(path string, _ os.DirEntry, err error) error {
		paths = append(paths, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}
