package ocsf

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// samples has each kind of event.
var samples = []audit.Event{
	audit.SandboxCreated{Source: "/home/me/p", Workspace: "/home/me/p", Runtime: "bwrap", Net: "none"},
	audit.SandboxStarted{PID: 7, Enforced: []string{"seccomp"}},
	audit.CommandExecuted{Exec: "x1", Argv: []audit.Text{"/bin/sh", "-c", "exit 3\n"}, ExitCode: 3, DurationMS: 12},
	audit.PermissionDenied{Exec: "x1", Path: "/.env", Operation: "open", Permission: "none", Rule: "**/.env", RuleSource: "preset agent-safe", PID: 9, Program: "cat", Count: 2},
	audit.PermissionDenied{Path: "/a\nb", Operation: "unlink", Permission: "read", RuleIndex: -1},
	audit.FileChanged{Exec: "x1", Created: []audit.Text{"/a"}, Modified: []audit.Text{"/b"}, Deleted: []audit.Text{"/c"}, Renamed: []audit.Rename{{From: "/d", To: "/e"}}, Omitted: 4},
	audit.ResourceLimitExceeded{Exec: "x1", Resource: audit.ResourcePIDs, Limit: 10, Count: 3},
	audit.NetworkAllowed{Host: "example.com", Port: 443, Address: "93.184.216.34", Rule: "example.com:443", SentBytes: 10, ReceivedBytes: 20},
	audit.NetworkAllowed{Host: "example.com", Port: 80, Rule: "example.com:80", Error: "connection refused"},
	audit.NetworkDenied{Host: "telemetry.example.com", Reason: "not in the allowlist", Count: 3},
	audit.PortConnected{Address: "127.0.0.7", HostPort: 8080, Port: 3000, SentBytes: 10, ReceivedBytes: 20},
	audit.HostsChanged{Reason: "policy grant", Granted: []audit.Text{"example.com:443"}, AllowNet: []audit.AllowedHost{{Host: "example.com:443"}}},
	audit.PolicyChanged{Reason: "policy set", Rules: []audit.Rule{}},
	audit.ApplyRequested{Digest: "ab12", Changes: 2, Message: "fix\nit"},
	audit.Applied{Paths: []audit.Text{"/a"}, Refused: []audit.Text{"/b"}},
	audit.Discarded{Paths: []audit.Text{"/c"}},
	audit.Undone{Transaction: "tx_1", Of: "tx_0", Paths: []audit.Text{"/d"}},
	audit.SessionCreated{Session: "s1", Exec: "x2", Shell: "/bin/bash"},
	audit.SessionClosed{Session: "s1", Exec: "x2", Reason: audit.SessionIdle, DurationMS: 5},
	audit.SandboxRebased{Source: "/home/me/p", WasInode: 1, Inode: 2},
	audit.ChangesImported{File: "/home/me/fix.db", SHA256: "ab12", Changes: 7, Deletions: 2},
	audit.SnapshotChanged{Action: audit.SnapshotForked, Snapshot: "s1", Fork: "b"},
	audit.Merged{From: "fork", FromID: "sbx_1", Kept: "s2", Paths: []audit.Text{"/d"}},
	audit.SandboxStopped{},
	audit.SandboxDestroyed{},
	audit.EventsOmitted{Reason: audit.OmittedSandboxBudget, Events: []audit.OmittedCount{{Event: audit.KindPermissionDenied, Records: 5}}},
	audit.Archived{Records: 3},
	audit.Gap{Reason: audit.GapTorn, Bytes: 4},
	audit.Malformed{Bytes: 3, Reason: "not a record"},
	audit.Unknown{Name: "of_a_later_version"},
	audit.AccessAsked{Ask: "1", Exec: "x1", Path: "/src/a", Need: "write", Operation: "open", Rule: "src/**", PID: 7, Program: "node"},
	audit.AccessAnswered{Ask: "1", Exec: "x1", Path: "/src/a", Need: "write", Allowed: true, Scope: "once", By: "terminal", WaitedMS: 1200},
	audit.AsksSuppressed{Count: 30},
	audit.NetworkDenied{Socket: "vsock socket", Program: "socat", Reason: "no program gets a socket of this kind", Count: 2},
	audit.LocksChanged{Action: audit.LocksBegin, Paths: []audit.Path{"/src"}, ForMS: 600_000},
	audit.MessagePosted{Seq: 7, By: "agent", Topic: "status", Bytes: 12},
}

func recordOf(t *testing.T, seq int, ev audit.Event) audit.Record {
	t.Helper()
	if _, bad := ev.(audit.Malformed); bad {
		return audit.Record{Event: ev, Raw: []byte("\xff{\n")}
	}
	raw, err := json.Marshal(ev)
	if err != nil {
		t.Fatal(err)
	}
	return audit.Record{
		Version: 1, Seq: uint64(seq), Time: time.UnixMilli(1795424400123).UTC(), Sandbox: "fix", ID: "sb_1", UserID: "me", Event: ev, Raw: raw,
	}
}

func TestEventsOfEachRecord(t *testing.T) {
	var got bytes.Buffer
	encoder := json.NewEncoder(&got)
	encoder.SetEscapeHTML(false)
	for i, ev := range samples {
		for _, e := range Events(recordOf(t, i+1, ev), "1.2.3") {
			if err := encoder.Encode(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	golden := filepath.Join("testdata", "events.jsonl")
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestEachKindOfEventIsMapped(t *testing.T) {
	sampled := map[audit.Kind]bool{}
	for _, ev := range samples {
		sampled[ev.Kind()] = true
	}
	for _, kind := range audit.Kinds() {
		if _, mapped := mappings[kind]; !mapped {
			t.Errorf("event %s has no mapping: add one", kind)
		}
		if !sampled[kind] {
			t.Errorf("event %s has no sample: add one, and run the test with -update", kind)
		}
	}
	if len(mappings) != len(audit.Kinds()) {
		t.Errorf("%d mappings of %d kinds", len(mappings), len(audit.Kinds()))
	}
}

func TestEventsAreOfTheirClass(t *testing.T) {
	needs := map[int]func(e Event) bool{
		1001: func(e Event) bool { return e.File != nil && e.Actor != nil && e.Device != nil },
		1007: func(e Event) bool { return e.Process != nil && e.Actor != nil && e.Device != nil },
		3004: func(e Event) bool { return e.Entity != nil },
		4001: func(e Event) bool { return e.DstEndpoint != nil },
		6002: func(e Event) bool { return e.App != nil },
		0:    func(e Event) bool { return e.RawData != "" },
	}
	for i, ev := range samples {
		for _, e := range Events(recordOf(t, i+1, ev), "1.2.3") {
			has, known := needs[e.ClassUID]
			if !known || !has(e) || e.TypeUID != e.ClassUID*100+e.ActivityID || e.CategoryUID != e.ClassUID/1000 || e.SeverityID == 0 || e.Metadata.Version != Version {
				t.Errorf("%s: %+v", ev.Kind(), e)
			}
		}
	}
}
