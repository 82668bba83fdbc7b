package attack_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// floodBudget is that of the sandbox's log: a few seconds of the flood would
// take many times as much.
const floodBudget = 128 << 10

// Each denied name is a record, names can be long, and a program can try new names without
// end. The audit log still keeps its budget, counts the omitted records, and has room for
// other events of the sandbox.
func TestAuditFlood(t *testing.T) {
	t.Setenv("AGENTFENSE_AUDIT_MAX_BYTES_PER_SANDBOX", fmt.Sprint(floodBudget))
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"a": "a\n"}, who...)
		const names = 900 // below what is told of each in some seconds
		// Where one name may be written, the others come to us to be refused.
		flags := []string{"--preset", "full-access", "--read", "closed/", "--write", "closed/open"}
		s.Write("closed/keep", "")
		for range 3 {
			passes(t, s, floodNames, []string{fmt.Sprint(names)}, flags...)
		}
		wantCode(t, s.Run("echo new > new"), 0)
		wantCode(t, s.Agentfense("apply", s.Name, "new"), 0)
		wantCode(t, s.Agentfense("stop", s.Name), 0)

		logs, err := filepath.Glob(filepath.Join(s.Home, "audit", "*.jsonl"))
		if err != nil || len(logs) != 1 {
			t.Fatalf("logs %v, %v", logs, err)
		}
		if info, err := os.Stat(logs[0]); err != nil || info.Size() > floodBudget {
			t.Errorf("the log has %v bytes, %v, want %d at most", info.Size(), err, floodBudget)
		}
		log := readAudit(t, s)
		for event, want := range map[string]int{
			"sandbox_created": 1, "command_executed": 4, "applied": 1,
		} {
			if log.events[event] != want {
				t.Errorf("%d records %s, want %d", log.events[event], event, want)
			}
		}
		if log.events["sandbox_started"] != log.events["sandbox_stopped"] || log.events["sandbox_started"] == 0 {
			t.Errorf("started %d times, stopped %d times", log.events["sandbox_started"], log.events["sandbox_stopped"])
		}
		if log.told == 0 || log.counted == 0 || log.told+log.counted != 3*names {
			t.Errorf("%d refusals told and %d counted, want %d in all", log.told, log.counted, 3*names)
		}
		agentfense(t, s, "audit", s.Name, "--verify")

		// Afterwards the records go elsewhere, and the log goes on.
		archive := filepath.Join(s.Source, "archive.jsonl")
		agentfense(t, s, "audit", s.Name, "--archive", archive)
		wantCode(t, s.Run("true"), 0)
		if got := agentfense(t, s, "audit", s.Name, "--verify"); !strings.Contains(got, "are in an archive") {
			t.Errorf("verify prints %q", got)
		}
	})
}

// Records have the arguments of commands. Many sandboxes, each within its own budget, still
// keep the budget of their owner.
func TestAuditFloodByCommandsOfManySandboxes(t *testing.T) {
	const budget, sandboxes, argument = 1 << 20, 4, 100 << 10
	t.Setenv("AGENTFENSE_AUDIT_MAX_BYTES_PER_OWNER", fmt.Sprint(budget))
	s := harness.New(t, binary, nil)
	var flood []string
	for range 5 {
		flood = append(flood, strings.Repeat("x", argument))
	}
	for i := range sandboxes {
		name := fmt.Sprintf("flood%d", i)
		for range 2 {
			agentfense(t, s, append([]string{"run", "--name", name, "--", "true"}, flood...)...)
		}
		agentfense(t, s, "rm", "--force", name)
	}
	logs, err := filepath.Glob(filepath.Join(s.Home, "audit", "*.jsonl"))
	if err != nil || len(logs) != sandboxes {
		t.Fatalf("logs %v, %v", logs, err)
	}
	total := int64(0)
	for _, log := range logs {
		info, err := os.Stat(log)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if total > budget {
		t.Errorf("the logs have %d bytes, want %d at most", total, budget)
	}
}

// auditCounts are what a log holds.
type auditCounts struct {
	events        map[string]int
	told, counted int // refusals
}

func readAudit(t *testing.T, s *harness.Sandbox) auditCounts {
	t.Helper()
	c := auditCounts{events: map[string]int{}}
	for line := range strings.Lines(agentfense(t, s, "audit", s.Name, "--json")) {
		var r struct {
			Event  string
			Count  int
			Events []struct{ Count int }
		}
		// "event" and "events" differ by more than case, so both are found.
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		c.events[r.Event]++
		if r.Event == "permission_denied" {
			c.told += r.Count
		}
		for _, e := range r.Events {
			c.counted += e.Count
		}
	}
	return c
}

// floodNames asks for many names, each as long as a name can be and each for
// the first time, where everything is refused.
var floodNames = program("flood names", func(in *inside, args []string) {
	var names int
	_, err := fmt.Sscan(args[0], &names)
	in.works("count", err)
	refused := 0
	for i := range names {
		name := fmt.Sprintf("closed/%d-%d-", os.Getpid(), i)
		name += strings.Repeat("\xff", 7+255-len(name))
		if _, err := unix.Open(name, unix.O_CREAT|unix.O_WRONLY, 0o644); errnoOf(err) == unix.EACCES {
			refused++
		}
	}
	in.is("refused", refused, names)
})
