package audit_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

var update = flag.Bool("update", false, "write the golden file anew")

func TestMain(m *testing.M) {
	if os.Getenv(appendEnv) != "" {
		appendAsProcess()
		return
	}
	goleak.VerifyTestMain(m)
}

// everyEvent is one of each kind that callers write, with bytes in the names
// that a terminal, JSON or a line-based reader would trip over.
var everyEvent = []audit.Event{
	audit.SandboxCreated{
		Source: "/home/me/project", Workspace: "/workspace", Runtime: "bwrap", Net: "none", HostUID: 1000, Preset: "agent-safe",
		Rules: []audit.Rule{
			{Pattern: "**", Permission: "read", Source: "preset agent-safe"},
			{Pattern: "*.pem", Permission: "none", Type: "glob", Priority: 10, Source: "--hide"},
		},
		Mounts: []audit.Mount{{Source: "/opt/go", Target: "/opt/go"}},
		Limits: audit.SandboxLimits{MemoryBytes: 512 << 20, CPUs: 1.5, PIDs: 100, DiskBytes: 1 << 30, DiskInodes: 10000, TimeoutMS: 30000},
	},
	audit.SandboxStarted{PID: 4711, Version: "0.1.0", Enforced: []string{"memory: cgroup v2", "seccomp"}},
	audit.PermissionDenied{
		Exec: "1", Path: "/a\nb\x1b[31m\xff", Operation: "open", Permission: "none",
		Rule: "*.pem", RuleIndex: 1, RuleSource: "--hide", PID: 4712, Program: "cat <&>", Count: 3,
	},
	audit.ResourceLimitExceeded{Exec: "1", Resource: audit.ResourceMemory, Limit: 512 << 20, Count: 1},
	audit.FileChanged{
		Exec: "1", Created: []audit.Text{"/new"}, Modified: []audit.Text{"/ä", "/\u202egpj"}, Deleted: []audit.Text{"/old"},
		Renamed: []audit.Rename{{From: "/from", To: "/to"}}, Omitted: 7,
	},
	audit.CommandExecuted{
		Exec: "1", Argv: []audit.Text{"sh", "-c", "printf '\x00\\n'"}, Dir: "/workspace", ExitCode: 137, Signal: "SIGKILL",
		DurationMS: 1234, CPUUserMS: 1000, CPUSystemMS: 20, MaxRSSBytes: 1 << 20, MemoryPeakBytes: 2 << 20, OOMKilled: true,
	},
	audit.NetworkAllowed{
		Host: "example.com", Port: 443, Address: "93.184.216.34", Rule: "*.com:443", SentBytes: 718, ReceivedBytes: -1, Error: "x\n",
	},
	audit.NetworkDenied{Host: "evil\x00.net", Port: 80, Reason: "not in the allowlist", Count: 3},
	audit.HostsChanged{
		Reason: "policy grant", Granted: []audit.Text{"example.com:443"}, Revoked: []audit.Text{"*.example.org:443"},
		AllowNet: []audit.AllowedHost{{Host: "example.com:443", Until: "2026-01-02T03:04:05Z"}, {Host: "10.0.0.1:22,raw"}},
	},
	audit.PolicyChanged{Reason: "flags at a resume", Rules: []audit.Rule{{Pattern: "/src/**", Permission: "write"}}},
	audit.Applied{Paths: []audit.Text{"/new", "/merged"}, Merged: []audit.Text{"/merged"}, Refused: []audit.Text{"/both"}},
	audit.Discarded{Paths: []audit.Text{"/old"}},
	audit.Undone{Transaction: "tx_1", Of: "tx_0", Redo: true, Paths: []audit.Text{"/new"}},
	audit.SessionCreated{Session: "sess_0123456789abcdef", Exec: "2", Shell: "/bin/sh", Dir: "/workspace"},
	audit.SessionClosed{Session: "sess_0123456789abcdef", Exec: "2", Reason: audit.SessionIdle, DurationMS: 1234},
	audit.SandboxRebased{Source: "/project", WasInode: 7, Inode: 8},
	audit.ChangesImported{File: "/home/me/fix.db", SHA256: "ab12", Changes: 7, Deletions: 2, LeftOut: 1},
	audit.SnapshotChanged{Action: audit.SnapshotRestored, Snapshot: "s1", Label: "good", Kept: "s2"},
	audit.Merged{From: "fork@s1", FromID: "sbx_1", Kept: "s2", Paths: []audit.Text{"/new"}},
	audit.SandboxStopped{Reason: "stopped by its user"},
	audit.SandboxDestroyed{},
	audit.EventsOmitted{
		Reason: audit.OmittedSandboxBudget, Since: "2026-01-02T03:04:05.000000006Z", Until: "2026-01-02T03:05:05.000000006Z",
		Events: []audit.OmittedCount{{Event: audit.KindPermissionDenied, Rule: "**/.env*", Records: 7, Count: 9}},
	},
	audit.Archived{Records: 17},
	audit.NetworkDenied{Socket: "raw socket (ICMP)", Program: "ping\x1b", Reason: "no program gets a socket of this kind", Count: 2},
}

// clock goes on by a second at each look.
func clock() func() time.Time {
	start := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	var looks atomic.Int64
	return func() time.Time { return start.Add(time.Duration(looks.Add(1)) * time.Second) }
}

func open(t testing.TB, path string) *audit.Log {
	t.Helper()
	l, err := audit.Open(path, audit.Options{Sandbox: "fix", ID: "sb_0123456789abcdef", Now: clock()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, l.Close()) })
	return l
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newLog returns the path of a log with the given events.
func newLog(t testing.TB, events ...audit.Event) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sb.jsonl")
	must(t, open(t, path).Append(events...))
	return path
}

func records(t testing.TB, path string) []audit.Record {
	t.Helper()
	var all []audit.Record
	must(t, audit.Read(path, func(r audit.Record) error {
		r.Raw = bytes.Clone(r.Raw)
		all = append(all, r)
		return nil
	}))
	return all
}

func events(t testing.TB, path string) []audit.Event {
	t.Helper()
	var all []audit.Event
	for _, r := range records(t, path) {
		all = append(all, r.Event)
	}
	return all
}

func TestEachEventIsOneLineOfTheFormat(t *testing.T) {
	path := newLog(t, everyEvent...)
	got, err := os.ReadFile(path)
	must(t, err)
	golden := filepath.Join("testdata", "events.jsonl")
	if *update {
		must(t, os.WriteFile(golden, got, 0o644))
	}
	want, err := os.ReadFile(golden)
	must(t, err)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
		t.Errorf("the log (-want +got):\n%s", diff)
	}
}

// An older log goes on with records that say whose the sandbox is.
func TestRecordsOfAServersSandboxSayWhoseItIs(t *testing.T) {
	path := newLog(t, audit.SandboxStarted{PID: 1})
	l, err := audit.Open(path, audit.Options{
		Sandbox: "fix", ID: "sb_0123456789abcdef", CodebaseID: "cb_0123456789abcdef", UserID: "me\n", Now: clock(),
	})
	must(t, err)
	must(t, l.Append(audit.SandboxStopped{Reason: "x"}, audit.SandboxDestroyed{}))
	must(t, l.Close())
	if s, err := audit.Verify(path); err != nil || s.Records != 3 || s.Gaps != 0 {
		t.Errorf("Verify = %+v, %v", s, err)
	}
	for i, r := range records(t, path) {
		var codebase, user audit.Text
		text := ""
		if i > 0 {
			codebase, user, text = "cb_0123456789abcdef", "me\n", `,"codebase_id":"cb_0123456789abcdef","user_id":"me\\x0a",`
		}
		if r.CodebaseID != codebase || r.UserID != user || !strings.Contains(string(r.Raw), text) ||
			(text == "") == strings.Contains(string(r.Raw), "_id") {
			t.Errorf("record %d: codebase %q, user %q in %s", i, r.CodebaseID, r.UserID, r.Raw)
		}
	}
}

func TestReadGivesBackWhatWasWritten(t *testing.T) {
	path := newLog(t, everyEvent...)
	if diff := cmp.Diff(everyEvent, events(t, path)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	first := records(t, path)[0]
	if first.Version != 1 || first.Seq != 1 || first.Sandbox != "fix" || first.ID != "sb_0123456789abcdef" ||
		!first.Time.Equal(time.Date(2026, 1, 2, 3, 4, 6, 6, time.UTC)) || first.Line != 1 || first.Offset != 0 {
		t.Errorf("first record = %+v", first)
	}
}

// TestTheChainNeedsOnlySHA256 recomputes it as docs/audit.md tells others to.
func TestTheChainNeedsOnlySHA256(t *testing.T) {
	data, err := os.ReadFile(newLog(t, everyEvent...))
	must(t, err)
	prev := strings.Repeat("0", 64)
	for line := range strings.Lines(string(data)) {
		i := strings.LastIndex(line, `,"hash":"`)
		sum := sha256.Sum256([]byte(line[:i]))
		if !strings.HasSuffix(line[:i], `,"prev":"`+prev+`"`) {
			t.Errorf("line %s does not name %s", line, prev)
		}
		prev = hex.EncodeToString(sum[:])
		if want := `,"hash":"` + prev + "\"}\n"; line[i:] != want {
			t.Errorf("line ends in %s, want %s", line[i:], want)
		}
	}
}

func TestAnyBytesComeBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sb.jsonl")
	l := open(t, path)
	rapid.Check(t, func(rt *rapid.T) {
		name := audit.Text(rapid.SliceOf(rapid.Byte()).Draw(rt, "name"))
		want := audit.PermissionDenied{Path: audit.Path(name), Program: name + "\\", Count: 1}
		must(t, l.Append(want))
		all := events(t, path)
		if diff := cmp.Diff(audit.Event(want), all[len(all)-1]); diff != "" {
			rt.Fatalf("event (-want +got):\n%s", diff)
		}
		must(t, os.Truncate(path, 0))
		must(t, os.Remove(path+".head"))
		must(t, l.Close())
		l = open(t, path)
	})
}

func TestWhatIsTooLongIsVisiblyCut(t *testing.T) {
	long := audit.Text("\xff\n\x1b" + strings.Repeat("a", 1<<20-3))
	many := make([]audit.Text, 100000)
	for i := range many {
		many[i] = "/some/file/of/some/length"
	}
	path := newLog(t,
		audit.PermissionDenied{Path: audit.Path(long), Rule: long, RuleSource: long, Program: long, Count: 1},
		audit.FileChanged{Created: many, Modified: []audit.Text{long}, Deleted: many[:1], Omitted: 5},
		audit.CommandExecuted{Argv: many},
		audit.Applied{Paths: many, Refused: many},
		audit.Discarded{Paths: many},
	)
	got := events(t, path)
	denied := got[0].(audit.PermissionDenied)
	kept := len(strings.TrimRight(string(denied.Path), `\cut{}0123456789`))
	if !strings.HasPrefix(string(long), string(denied.Path[:kept])) {
		t.Error("what is left of the path is not its beginning")
	}
	if kept == 0 || !strings.HasSuffix(string(denied.Path), `\cut{`+strconv.Itoa(1<<20-kept)+`}`) {
		t.Errorf("path of %d bytes ends in %q, want a cut mark for %d", len(denied.Path), denied.Path[kept:], 1<<20-kept)
	}
	changed := got[1].(audit.FileChanged)
	if n := len(changed.Created) + len(changed.Modified) + len(changed.Deleted); n == 0 || changed.Omitted != int64(100000+1+1+5-n) {
		t.Errorf("%d changes and %d omitted, want all counted", n, changed.Omitted)
	}
	command := got[2].(audit.CommandExecuted)
	if command.ArgvOmitted == 0 || command.ArgvOmitted+int64(len(command.Argv)) != 100000 {
		t.Errorf("%d arguments and %d omitted, want all counted", len(command.Argv), command.ArgvOmitted)
	}
	applied, discarded := got[3].(audit.Applied), got[4].(audit.Discarded)
	if n := int64(len(applied.Paths) + len(applied.Refused)); applied.Omitted != 200000-n || discarded.Omitted == 0 {
		t.Errorf("%d and %d omitted, want all counted", applied.Omitted, discarded.Omitted)
	}
	if _, err := audit.Verify(path); err != nil {
		t.Error(err)
	}
}

func TestOnlyOwnEventsAreWritten(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "sb.jsonl"))
	for _, ev := range []audit.Event{audit.Unknown{Name: "novel"}, audit.Malformed{}} {
		if err := l.Append(ev); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("Append(%T) = %v, want Invalid", ev, err)
		}
	}
}

func TestReadStopsWhereToldTo(t *testing.T) {
	enough := errors.New("enough")
	n := 0
	err := audit.Read(newLog(t, everyEvent...), func(audit.Record) error {
		n++
		return enough
	})
	if !errors.Is(err, enough) || n != 1 {
		t.Errorf("Read = %v after %d records, want the caller's error after 1", err, n)
	}
}

func FuzzRead(f *testing.F) {
	seed, err := os.ReadFile(newLog(f, everyEvent...))
	must(f, err)
	f.Add(seed)
	f.Add(seed[:len(seed)-10])
	f.Add([]byte("\n\n{}\n\x00\xff"))
	f.Add([]byte(`{"v":1,"hash":"` + strings.Repeat("0", 64) + `"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var size int64
		line := 0
		must(t, audit.ReadFrom(bytes.NewReader(data), func(r audit.Record) error {
			line++
			if r.Offset != size || r.Line != line {
				t.Fatalf("record at %d, line %d, want at %d, line %d", r.Offset, r.Line, size, line)
			}
			size += int64(len(r.Raw)) + 1
			return nil
		}))
		if !bytes.HasSuffix(data, []byte("\n")) && len(data) > 0 {
			size--
		}
		if size != int64(len(data)) {
			t.Fatalf("the records are %d bytes, want %d", size, len(data))
		}
	})
}
