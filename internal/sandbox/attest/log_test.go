package attest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/contributor"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

var (
	narrow = []policy.Rule{{Pattern: "**/.env", Permission: policy.None}}
	wide   = []policy.Rule{{Pattern: "**", Permission: policy.Read}}
)

// logged is the audit log of a sandbox, in parts, and a statement about it.
type logged struct {
	t     *testing.T
	dir   string
	log   *audit.Log
	parts []string // archives
	st    *Statement
}

func newLogged(t *testing.T) *logged {
	l := &logged{t: t, dir: t.TempDir()}
	var err error
	l.log, err = audit.Open(l.path(), audit.Options{Sandbox: "fix", ID: "sb_1"})
	l.must(err)
	t.Cleanup(func() { l.must(l.log.Close()) })
	own, err := policiesOf(narrow, [][]policy.Rule{wide})
	l.must(err)
	sum, _, err := contributor.EncodeRules(wide)
	l.must(err)
	l.st = &Statement{Type: StatementType, PredicateType: PredicateType, Predicate: Predicate{
		Changes: []Change{}, Policies: own, Sandbox: Sandbox{ID: "sb_1"}, Time: time.Unix(1, 0).UTC(),
		Mounts: []Mount{{Name: "data", Mode: "cow", Policies: own[1:]}}, EarlierMounts: []Mount{{Name: "old", Mode: "ro"}},
		Network: Network{Mode: "none", Earlier: &EarlierNetwork{
			Modes: []string{"named"}, Allow: []string{"a.example.com:443", "b.example.com:443"}, Publish: []uint16{3000},
			Secrets: []Secret{{Name: "KEY", Hosts: []string{"api.example.com:443"}}},
		}},
		Contributors: []Contributor{{ID: "sb_2", Name: "other", Policies: own, Network: &Network{Mode: "none"}}},
	}}
	l.append(
		audit.SandboxCreated{Net: "named", Rules: record.AuditRules(wide), Mounts: []audit.Mount{{Name: "old", Mode: "ro"}}},
		audit.SandboxStarted{
			Enforced: []string{"fuse", "net named"}, AllowNet: []audit.Text{"a.example.com:443"}, Published: []audit.PublishedPort{{Port: 3000}},
			Mounts: []audit.Mount{{Name: "data", Mode: "cow", RulesSHA256: sum}},
		},
	)
	l.archive()
	l.append(
		audit.HostsChanged{Granted: []audit.Text{"b.example.com:443"}, AllowNet: []audit.AllowedHost{{Host: "a.example.com:443"}, {Host: "b.example.com:443"}}},
		audit.NetworkAllowed{Host: "b.example.com", Port: 443, Rule: "b.example.com:443"},
		audit.NetworkAllowed{Host: "key.agentfense.internal", Port: 80, Rule: "key.agentfense.internal:80"},
		audit.Merged{From: "other", FromID: "sb_2"},
	)
	l.archive()
	l.append(audit.PolicyChanged{Rules: record.AuditRules(narrow)}, audit.Applied{Paths: []audit.Text{"/a"}})
	summary, err := audit.Verify(l.path())
	l.must(err)
	l.st.Predicate.Audit.Head = summary.Head.String()
	l.append(audit.PolicyChanged{Rules: record.AuditRules([]policy.Rule{{Pattern: "/later", Permission: policy.Read}})})
	return l
}

func (l *logged) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *logged) path() string { return filepath.Join(l.dir, "log") }

func (l *logged) append(events ...audit.Event) {
	l.t.Helper()
	l.must(l.log.Append(events...))
}

func (l *logged) archive() {
	l.t.Helper()
	f, err := os.Create(filepath.Join(l.dir, "archive"+string(rune('0'+len(l.parts)))))
	l.must(err)
	defer f.Close()
	l.must(l.log.Archive(f))
	l.parts = append(l.parts, f.Name())
}

// alone returns the log without a head file, as a reviewer gets it, and the archives.
func (l *logged) alone() (path string, archives []string) {
	l.t.Helper()
	dir := l.t.TempDir()
	for i, from := range append([]string{l.path()}, l.parts...) {
		text, err := os.ReadFile(from)
		l.must(err)
		to := filepath.Join(dir, filepath.Base(from))
		l.must(os.WriteFile(to, text, 0o600))
		if i > 0 {
			archives = append(archives, to)
		}
	}
	return filepath.Join(dir, "log"), archives
}

func (l *logged) wants(what, want string, path string, archives ...string) {
	l.t.Helper()
	_, err := l.st.CheckLog(path, archives...)
	if !errdefs.Is(err, errdefs.Invalid) || !strings.Contains(err.Error(), want) {
		l.t.Errorf("%s: %v, want Invalid with %q", what, err, want)
	}
}

// Archives count in whatever order they are given, and none may be missing.
func TestALogIsCheckedWithItsArchives(t *testing.T) {
	l := newLogged(t)
	path, archives := l.alone()
	for _, all := range [][]string{archives, {archives[1], archives[0]}} {
		if summary, err := l.st.CheckLog(path, all...); err != nil || summary.Archived != 0 {
			t.Errorf("got %+v, %v", summary, err)
		}
	}
	l.wants("no archive", "in an archive: give that", path)
	l.wants("only the second", "in an archive: give that", path, archives[1])
	l.wants("only the first", "line 1: record", path, archives[0])
	l.wants("one twice", "line 1: record", path, archives[0], archives[0], archives[1])
	l.wants("archives alone", "it ends with record", archives[1], archives[0])
	if _, err := l.st.CheckLog(path, filepath.Join(l.dir, "no-such")); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("no such archive: %v, want NotFound", err)
	}
}

func TestALogOfAnotherSandboxIsRefused(t *testing.T) {
	l := newLogged(t)
	path, archives := l.alone()
	l.st.Predicate.Sandbox.ID = "sb_3"
	l.wants("another sandbox", "of another sandbox", path, archives...)
	l.st.Predicate.Sandbox.ID = "sb_1"
	other := newLogged(t)
	otherPath, otherArchives := other.alone()
	l.wants("a log with the same events", "not the one that was recorded as the head", otherPath, otherArchives...)
	l.wants("archives of another log", "line 1: record", path, otherArchives...)
}

// Each byte of each part until the record of the statement counts, of which a third is tried, and
// so does each of the records.
func TestAnyChangedByteOfALogIsFound(t *testing.T) {
	l := newLogged(t)
	path, archives := l.alone()
	for _, part := range append([]string{path}, archives...) {
		whole, err := os.ReadFile(part)
		l.must(err)
		size := len(whole) - 1 // the last newline is no loss
		if part == path {
			size = bytes.LastIndexByte(whole[:size], '\n')
		}
		for i := 0; i < size; i += 3 {
			data := bytes.Clone(whole)
			data[i] ^= 1
			l.must(os.WriteFile(part, data, 0o600))
			if _, err := l.st.CheckLog(path, archives...); !errdefs.Is(err, errdefs.Invalid) {
				t.Fatalf("%s with byte %d changed: %v, want Invalid", filepath.Base(part), i, err)
			}
		}
		lines := bytes.SplitAfter(whole[:size+1], []byte("\n"))
		for i := range lines {
			if len(lines[i]) == 0 {
				continue
			}
			l.must(os.WriteFile(part, bytes.Join(append(lines[:i:i], lines[i+1:]...), nil), 0o600))
			if _, err := l.st.CheckLog(path, archives...); !errdefs.Is(err, errdefs.Invalid) {
				t.Errorf("%s without line %d: %v, want Invalid", filepath.Base(part), i+1, err)
			}
			l.must(os.WriteFile(part, bytes.Join(lines[:i], nil), 0o600))
			if _, err := l.st.CheckLog(path, archives...); !errdefs.Is(err, errdefs.Invalid) {
				t.Errorf("%s cut before line %d: %v, want Invalid", filepath.Base(part), i+1, err)
			}
		}
		l.must(os.WriteFile(part, whole, 0o600))
	}
	if _, err := l.st.CheckLog(path, archives...); err != nil {
		t.Error(err)
	}
}

// A statement that leaves something out does not pass, also where the log has it in an archive.
func TestTheLogTellsWhatAStatementLeavesOut(t *testing.T) {
	for name, tt := range map[string]struct {
		leave func(*Predicate)
		want  string
	}{
		"an earlier policy":       {func(p *Predicate) { p.Policies = p.Policies[:1] }, "has a policy"},
		"the policy in force":     {func(p *Predicate) { p.Policies = p.Policies[1:] }, "has a policy"},
		"an earlier network":      {func(p *Predicate) { p.Network.Earlier.Modes = nil }, "has a network"},
		"a host of the start":     {func(p *Predicate) { p.Network.Earlier.Allow = p.Network.Earlier.Allow[1:] }, "has an allowed host"},
		"a host that was granted": {func(p *Predicate) { p.Network.Earlier.Allow = p.Network.Earlier.Allow[:1] }, "has an allowed host"},
		"a secret":                {func(p *Predicate) { p.Network.Earlier.Secrets = nil }, "has an allowed host"},
		"a port":                  {func(p *Predicate) { p.Network.Earlier.Publish = nil }, "has a published port"},
		"an earlier mount":        {func(p *Predicate) { p.EarlierMounts = nil }, "has a mount"},
		"the policy of a mount":   {func(p *Predicate) { p.Mounts[0].Policies = p.Policies[:1] }, "has a mount"},
		"the sandbox of a merge":  {func(p *Predicate) { p.Contributors = nil }, "brings changes"},
		"what a contributor may have": {func(p *Predicate) {
			p.Contributors[0].Network.Allow, p.Network.Earlier.Allow = p.Network.Earlier.Allow, nil
		}, "has an allowed host"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLogged(t)
			tt.leave(&l.st.Predicate)
			path, archives := l.alone()
			l.wants(name, tt.want, path, archives...)
		})
	}
}

func TestReachIsWhatTheAuthorCouldEverReach(t *testing.T) {
	l := newLogged(t)
	r := l.st.Reach()
	if got := strings.Join(r.Hosts, " "); r.Any || r.Unknown || got != "a.example.com:443 api.example.com:443 b.example.com:443" || len(r.Publish) != 1 {
		t.Errorf("got %+v", r)
	}
	l.st.Predicate.Contributors[0].Network.Earlier = &EarlierNetwork{Modes: []string{"host"}}
	l.st.Predicate.Contributors = append(l.st.Predicate.Contributors, Contributor{Imported: sum})
	if r := l.st.Reach(); !r.Any || !r.Unknown {
		t.Errorf("got %+v", r)
	}
}
