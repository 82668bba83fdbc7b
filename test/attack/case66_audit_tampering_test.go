package attack_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// forgedName would be a record of its own, if the log took names as they are.
const forgedName = "x\n{\"v\":1,\"seq\":99,\"event\":\"sandbox_destroyed\"}\r\x1b[2K\u202e"

// A program inside neither sees the log nor forges a record by what it names.
func TestProgramsInsideCannotForgeTheAuditLog(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		log := tamperLog(t, s)
		passes(t, s, forgeRecords, []string{log, s.Home})
		lines := strings.Split(strings.TrimSuffix(agentfense(t, s, "audit", s.Name, "--json"), "\n"), "\n")
		forged := 0
		for i, line := range lines {
			var r struct {
				Seq         int
				Event, Path string
			}
			if err := json.Unmarshal([]byte(line), &r); err != nil || r.Seq != i+1 || r.Event == "sandbox_destroyed" {
				t.Errorf("record %d is %q (%v)", i+1, line, err)
			}
			if r.Event == "permission_denied" && strings.Contains(r.Path, "sandbox_destroyed") {
				forged++
			}
		}
		if forged == 0 {
			t.Error("the refused name is not in the log")
		}
		if text := agentfense(t, s, "audit", s.Name); strings.ContainsAny(text, "\r\x1b\u202e") || strings.Count(text, "\n") != len(lines) {
			t.Errorf("what people read has what a name brought:\n%q", text)
		}
		agentfense(t, s, "audit", s.Name, "--verify")
	})
}

// tamperLog makes the sandbox and returns the path of its log.
func tamperLog(t *testing.T, s *harness.Sandbox) string {
	t.Helper()
	s.Write("closed/keep", "")
	// Where one name may be written, the others come to us to be refused.
	wantCode(t, s.Run("true", "--preset", "full-access", "--read", "closed/", "--write", "closed/open"), 0)
	logs, err := filepath.Glob(filepath.Join(s.Home, "audit", "*.jsonl"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs %v, %v", logs, err)
	}
	return logs[0]
}

var forgeRecords = program("forge records", func(in *inside, args []string) {
	for _, path := range args {
		_, err := os.Stat(path)
		in.errno("look for "+path, err, unix.ENOENT)
	}
	_, err := unix.Open("closed/"+forgedName, unix.O_CREAT|unix.O_WRONLY, 0o644)
	in.errno("make the name", err, unix.EACCES)
})

// Whoever changes the log afterwards is found out: by the chain of hashes, by the head file, and,
// where both were forged, by a head that was kept elsewhere. Bytes at the end that are not a record
// may be those of an interrupted write, which it says.
func TestAChangedAuditLogDoesNotVerify(t *testing.T) {
	s := harness.New(t, binary, nil)
	path := tamperLog(t, s)
	wantCode(t, s.Run("cat .env; true"), 0)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, err := os.ReadFile(path + ".head")
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	lines = lines[:len(lines)-1]
	join := func(parts ...[][]byte) []byte {
		var all []byte
		for _, p := range parts {
			all = append(all, bytes.Join(p, nil)...)
		}
		return all
	}
	n := len(lines)
	for name, changed := range map[string][]byte{
		"edited":                 bytes.Replace(whole, []byte(`"sandbox_started"`), []byte(`"sandbox_stopped"`), 1),
		"a record removed":       join(lines[:2], lines[3:]),
		"the last one removed":   join(lines[:n-1]),
		"all removed":            {},
		"two exchanged":          join(lines[:1], lines[2:3], lines[1:2], lines[3:]),
		"one repeated":           join(lines[:2], lines[1:]),
		"the first removed":      join(lines[1:]),
		"the last one torn":      whole[:len(whole)-10],
		"a foreign line at last": append(bytes.Clone(whole), []byte("{}\n")...),
	} {
		t.Run(name, func(t *testing.T) {
			tamper(t, path, changed)
			if r := s.Agentfense("audit", s.Name, "--verify"); r.Code == 0 && !strings.Contains(r.Stdout, "interrupted write") {
				t.Errorf("it verifies: %s", r.Stdout)
			}
			tamper(t, path, whole)
			agentfense(t, s, "audit", s.Name, "--verify")
		})
	}
	t.Run("with its head", func(t *testing.T) {
		kept := strings.TrimSpace(string(head))
		tamper(t, path, join(lines[:n-1]))
		tamper(t, path+".head", nil)
		if r := s.Agentfense("audit", s.Name, "--verify", "--head", kept); r.Code == 0 {
			t.Errorf("it verifies against a head that was kept: %s", r.Stdout)
		}
	})
}

func tamper(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
