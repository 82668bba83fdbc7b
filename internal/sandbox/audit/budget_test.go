package audit_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

const testBudget = 128 << 10

// openBounded opens a log with a budget; the caller closes it.
func openBounded(t *testing.T, path string, b audit.Budget) *audit.Log {
	t.Helper()
	l, err := audit.Open(path, audit.Options{Sandbox: "fix", ID: "sb_0123456789abcdef", Now: clock(), Budget: b})
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	return l
}

// longDenied is a refusal of one of many names, as long as they can be.
func longDenied(i int) audit.PermissionDenied {
	return audit.PermissionDenied{
		Path:      audit.Path(fmt.Sprintf("/%d/%s", i, strings.Repeat("\xff", 4000))),
		Operation: "open", Permission: "none", Rule: "**", Count: 2,
	}
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Size()
}

// count returns how many refusals are in the log at path, told and counted.
func count(t *testing.T, path string) (told, counted int64) {
	t.Helper()
	for _, ev := range events(t, path) {
		switch e := ev.(type) {
		case audit.PermissionDenied:
			told += int64(e.Count)
		case audit.EventsOmitted:
			counted += e.Refusals()
		}
	}
	return told, counted
}

func TestAFloodStaysWithinTheBudget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sb.jsonl")
	l := openBounded(t, path, audit.Budget{Bytes: testBudget})
	const floods = 500
	must(t, l.Append(audit.SandboxStarted{PID: 1}))
	for i := range floods {
		must(t, l.Append(longDenied(i)))
	}
	must(t, l.CheckRoom())
	must(t, l.Append(audit.CommandExecuted{Argv: []audit.Text{"flood"}}, audit.Applied{Paths: []audit.Text{"/new"}}, audit.SandboxStopped{}))
	must(t, l.Close())

	if size := sizeOf(t, path); size > testBudget {
		t.Errorf("the log has %d bytes, want %d at most", size, testBudget)
	}
	told, counted := count(t, path)
	if told == 0 || counted == 0 || told+counted != 2*floods {
		t.Errorf("%d refusals told and %d counted, want %d in all", told, counted, 2*floods)
	}
	kinds := map[audit.Kind]int{}
	for _, ev := range events(t, path) {
		kinds[ev.Kind()]++
	}
	for _, k := range []audit.Kind{audit.KindSandboxStarted, audit.KindCommandExecuted, audit.KindApplied, audit.KindSandboxStopped} {
		if kinds[k] != 1 {
			t.Errorf("%d records %s, want 1", kinds[k], k)
		}
	}
	if _, err := audit.Verify(path); err != nil {
		t.Error(err)
	}
}

func TestCountsComeBeforeTheirCommand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sb.jsonl")
	l := openBounded(t, path, audit.Budget{Bytes: testBudget})
	var flood []audit.Event
	for i := range 300 {
		flood = append(flood, longDenied(i))
	}
	must(t, l.Append(append(flood, audit.CommandExecuted{Argv: []audit.Text{"flood"}})...))
	all := events(t, path)
	if _, ok := all[len(all)-2].(audit.EventsOmitted); !ok || all[len(all)-1].Kind() != audit.KindCommandExecuted {
		t.Errorf("the last records are %s and %s, want the counts and the command", all[len(all)-2].Kind(), all[len(all)-1].Kind())
	}
	if told, counted := count(t, path); told+counted != 600 {
		t.Errorf("%d refusals told and %d counted, want 600", told, counted)
	}
}

func TestManyCommandsStayWithinTheBudget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sb.jsonl")
	l := openBounded(t, path, audit.Budget{Bytes: testBudget})
	long := make([]audit.Text, 2000)
	for i := range long {
		long[i] = "argument"
	}
	const commands = 60 // several times what the budget holds
	for range commands {
		must(t, l.Append(audit.CommandExecuted{Argv: long, Error: audit.Text(strings.Repeat("e", 20000))}))
	}
	must(t, l.CheckRoom())
	must(t, l.Append(audit.PolicyChanged{Reason: "afterwards"}, audit.SandboxStopped{}))
	must(t, l.Close())
	if size := sizeOf(t, path); size > testBudget {
		t.Errorf("the log has %d bytes, want %d at most", size, testBudget)
	}
	var told, counted int64
	policies := 0
	for _, ev := range events(t, path) {
		switch e := ev.(type) {
		case audit.CommandExecuted:
			told++
		case audit.EventsOmitted:
			counted += e.Records()
		case audit.PolicyChanged:
			policies++
		}
	}
	if told+counted != commands || policies != 1 {
		t.Errorf("%d commands told, %d counted and %d policies, want %d and 1", told, counted, policies, commands)
	}
}

func TestAFullLogRefusesWhatMustBeRecorded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sb.jsonl")
	l := openBounded(t, path, audit.Budget{Bytes: testBudget})
	n := 0
	for ; l.CheckRoom() == nil; n++ {
		must(t, l.Append(audit.Applied{Paths: []audit.Text{"/" + audit.Text(strings.Repeat("a", 1000))}}))
	}
	if err := l.CheckRoom(); !errdefs.Is(err, errdefs.Exhausted) {
		t.Errorf("CheckRoom = %v, want Exhausted", err)
	}
	must(t, l.Append(audit.SandboxDestroyed{}))
	all := events(t, path)
	if len(all) != n+1 || all[n].Kind() != audit.KindSandboxDestroyed {
		t.Errorf("%d records, want the %d and the removal", len(all), n)
	}
}

func TestTheOwnersBudgetHasParts(t *testing.T) {
	const budget = 16 << 20
	for _, tt := range []struct {
		name             string
		used             int64
		err              error
		refusal, command bool // are told
	}{
		{"half is used", budget / 2, nil, true, true},
		{"the part of refusals is used", budget - budget/4, nil, false, true},
		{"the part of commands is used", budget - budget/16, nil, false, false},
		{"it cannot be told", 0, errors.New("no"), false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "sb.jsonl")
			l := openBounded(t, path, audit.Budget{OwnerBytes: budget, OwnerUsed: func() (int64, error) { return tt.used, tt.err }})
			must(t, l.Append(denied(1), audit.CommandExecuted{}, audit.SandboxStopped{}))
			must(t, l.Close())
			kinds := map[audit.Kind]bool{}
			for _, ev := range events(t, path) {
				kinds[ev.Kind()] = true
				if e, is := ev.(audit.EventsOmitted); is && e.Reason != audit.OmittedOwnerBudget {
					t.Errorf("omitted for %s", e.Reason)
				}
			}
			want := map[audit.Kind]bool{audit.KindSandboxStopped: true}
			for kind, told := range map[audit.Kind]bool{
				audit.KindPermissionDenied: tt.refusal, audit.KindCommandExecuted: tt.command, audit.KindEventsOmitted: !tt.refusal || !tt.command,
			} {
				if told {
					want[kind] = true
				}
			}
			if diff := cmp.Diff(want, kinds); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

func TestALongPathIsToldByItsHash(t *testing.T) {
	one, two := longDenied(1), longDenied(1)
	two.Path += "z"
	got := events(t, newLog(t, one, two, denied(3)))
	a, b, c := got[0].(audit.PermissionDenied), got[1].(audit.PermissionDenied), got[2].(audit.PermissionDenied)
	if len(a.PathSHA256) != 64 || a.PathSHA256 == b.PathSHA256 || c.PathSHA256 != "" {
		t.Errorf("hashes %q, %q, %q, want two that differ and none of a short path", a.PathSHA256, b.PathSHA256, c.PathSHA256)
	}
	if len(a.Path) > 2<<10 {
		t.Errorf("the path kept has %d bytes", len(a.Path))
	}
}

func TestAnArchiveGoesOnInTheLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sb.jsonl")
	archive := filepath.Join(t.TempDir(), "archive.jsonl")
	l, other := openBounded(t, path, audit.Budget{}), openBounded(t, path, audit.Budget{})
	must(t, l.Append(denied(1), denied(2)))
	must(t, other.Append(denied(3)))
	before, err := audit.Verify(path)
	must(t, err)
	out, err := os.Create(archive)
	must(t, err)
	must(t, l.Archive(out))
	must(t, out.Close())
	must(t, other.Append(denied(4)))

	if diff := cmp.Diff([]audit.Event{denied(1), denied(2), denied(3)}, events(t, archive)); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]audit.Event{audit.Archived{Records: 3}, denied(4)}, events(t, path)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	after, err := audit.Verify(path, before.Head)
	if err != nil || after.Archived != 3 || after.Records != 2 || after.Head.Seq != 5 || after.Gaps != 0 {
		t.Errorf("Verify = %+v, %v", after, err)
	}
	if s, err := audit.Verify(archive, before.Head); err != nil || s.Head != before.Head {
		t.Errorf("Verify of the archive = %+v, %v", s, err)
	}
	if _, err := audit.Verify(path, audit.Head{Seq: 1, Hash: before.Head.Hash}); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("Verify with a head of the archive = %v, want Invalid", err)
	}
	// Without the record that tells of the archive, records are missing.
	data, err := os.ReadFile(path)
	must(t, err)
	_, rest, _ := strings.Cut(string(data), "\n")
	must(t, os.WriteFile(path, []byte(rest), 0o600))
	if _, err := audit.Verify(path); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("Verify without the first record = %v, want Invalid", err)
	}
}
