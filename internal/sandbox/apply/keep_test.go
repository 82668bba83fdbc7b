package apply_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/keep"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// keepRules lets everything be written, and keeps what is below /state and keys of conf.json.
var keepRules = []policy.Rule{
	{Pattern: "/**", Permission: policy.Write},
	{Pattern: "/state/", Permission: policy.Write, Keep: true},
	{Pattern: "/state/reviewed/", Permission: policy.Write, Type: policy.Directory},
	{Pattern: "/state/hidden", Permission: policy.None, Own: true, Priority: 1},
	{Pattern: "conf*.json", Permission: policy.Write, Keep: true, Keys: "history\nprojects.*.history"},
	{Pattern: "*.db*", Permission: policy.Write, Keep: true},
}

// keep is the end of a command. It returns what was kept and what waits, a line each.
func (b *bench) keep() []string {
	b.t.Helper()
	k, err := keep.Keep(b.t.Context(), b.box, nil)
	if err != nil {
		b.t.Fatalf("Keep: %v", err)
	}
	return keepLines(k)
}

func keepLines(k keep.Result) []string {
	lines := []string{}
	for _, p := range k.Kept {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s", p.Status, p.Path, strings.Join(p.Keys, ","))))
	}
	for _, p := range k.Waits {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("- %s%s: %s", p.Path, strings.Join(append([]string{""}, p.Keys...), " "), p.Why)))
	}
	return lines
}

func wantLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		t.Errorf("kept and waiting (-want +got):\n%s", diff)
	}
}

func TestKeepAppliesRegularFilesBelowItsRules(t *testing.T) {
	b := newBench(t, tree{"state/token": "old", "state/gone/a": "1", "state/gone/b": "1", "state/lock": "", "src": "1"}, keepRules...)
	b.agent(func(a *agent) {
		a.write("/state/token.tmp", "new")
		a.rename("/state/token.tmp", "/state/token")
		a.mkdir("/state/made")
		a.mkdir("/state/made/deep")
		a.write("/state/made/deep/history", "1")
		a.removeAll("/state/gone")
		a.mkdir("/state/lockdir")
		a.remove("/state/lock")
		a.write("/src", "2")
	})
	wantLines(t, b.keep(), "D /state/gone", "D /state/gone/a", "D /state/gone/b", "D /state/lock", "A /state/made/deep/history", "M /state/token",
		"- /state/lockdir: only regular files are kept, and it is a directory")
	want := tree{"state/": "", "state/token": "new", "state/made/": "", "state/made/deep/": "", "state/made/deep/history": "1", "src": "1"}
	if diff := cmp.Diff(want, snapshot(t, b.dir)); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
	if got := b.changes(); !slices.Equal(got, []string{"M /src", "A /state/lockdir"}) {
		t.Errorf("changes left: %q", got)
	}
	log, err := os.ReadFile(b.box.AuditPath())
	if err != nil || !strings.Contains(string(log), `"kept":true`) {
		t.Errorf("audit log, %v:\n%s", err, log)
	}
	wantLines(t, b.keep(), "- /state/lockdir: only regular files are kept, and it is a directory")
}

// A program cannot use the rule to bring anything to the host that acts there.
func TestKeepLeavesWhatMustBeReviewed(t *testing.T) {
	b := newBench(t, tree{
		"state/script": "x:1", "state/link": "-> token", "state/file": "1", "state/dir/a": "1", "state/reviewed/a": "1", "state/hidden": "secret",
		"state/token": "1", "state/private": "1", "state/.git/config": "", "state/.git/HEAD": "ref: refs/heads/main\n", "other": "1", "state/moved": "1",
	}, keepRules...)
	if err := os.Chmod(filepath.Join(b.dir, "state/private"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, b.dir)
	b.agent(func(a *agent) {
		a.write("/state/script", "2")
		a.write("/state/new.sh", "#!/bin/sh")
		a.chmod("/state/new.sh", 0o755)
		a.remove("/state/token")
		a.symlink("/etc/passwd", "/state/token")
		a.remove("/state/link")
		a.write("/state/link", "over a link")
		a.write("/state/.envrc", "evil")
		a.write("/state/package.json", `{"scripts":{"test":"evil"}}`)
		a.mkdir("/state/.git/hooks")
		a.write("/state/.git/hooks/post-checkout", "evil")
		a.write("/state/.git/HEAD", "ref: refs/heads/evil\n")
		a.write("/state/reviewed/a", "2")
		a.chmod("/state/private", 0o644)
		a.write("/state/everybody", "1")
		a.chmod("/state/everybody", 0o666)
		_, err := a.stack.Mknod("/state/fifo", unix.S_IFIFO|0o644)
		a.check(err)
		a.remove("/state/file")
		a.mkdir("/state/file")
		a.write("/state/file/a", "1")
		a.removeAll("/state/dir")
		a.symlink("reviewed", "/state/dir")
		a.mkdir("/state/open")
		a.chmod("/state/open", 0o777)
		a.write("/state/open/a", "1")
		a.rename("/state/moved", "/state/reviewed/moved")
		a.mkdir("/state/data")
		a.symlink("data", "/state/.hg")
		a.write("/state/data/hgrc", "evil")
	})
	got := strings.Join(b.keep(), "\n")
	for _, at := range []string{
		"script: it is", "new.sh: it is marked", "token: it is marked", ".envrc: it is marked", "package.json: it is marked", ".git/hooks/post-checkout: it is marked", ".git/HEAD: it is",
		"private: its mode", "everybody: its mode", "fifo: only regular files", "moved: it was renamed", "data/hgrc: it is marked", "open/a: its directory waits",
		"link: only regular files are kept, and it is a symbolic link", "dir/a: its directory state/dir is no directory",
	} {
		if !strings.Contains(got, "- /state/"+at) {
			t.Errorf("%s is missing", at)
		}
	}
	if diff := cmp.Diff(before, snapshot(t, b.dir)); diff != "" || t.Failed() {
		t.Errorf("source (-want +got):\n%s\n%s", diff, got)
	}
}

func TestKeepNeverAppliesOwnEntries(t *testing.T) {
	b := newBench(t, tree{"state/hidden": "secret"}, keepRules...)
	b.agent(func(a *agent) {
		f, _, err := a.stack.Create(vpath.Path("/state").Child(vpath.OwnName("hidden")), 0o644)
		a.check(err)
		a.check(f.Close())
	})
	wantLines(t, b.keep())
	if got := snapshot(t, b.dir)["state/hidden"]; got != "secret" {
		t.Errorf("what is hidden is %q", got)
	}
}

func TestKeepLeavesWhatChangedInTheSource(t *testing.T) {
	b := newBench(t, tree{"state/a": "1", "state/b": "1", "state/c": "1"}, keepRules...)
	b.agent(func(a *agent) {
		a.write("/state/a", "2")
		a.write("/state/b", "2")
		a.remove("/state/c")
		a.write("/state/new", "2")
	})
	build(t, b.dir, tree{"state/a": "3", "state/c": "3", "state/new": "3"})
	wantLines(t, b.keep(), "M /state/b", "- /state/a: changed in the source since the sandbox saw it", "- /state/c: changed in the source since the sandbox saw it", "- /state/new: also made in the source")
	if diff := cmp.Diff(tree{"state/": "", "state/a": "3", "state/b": "2", "state/c": "3", "state/new": "3"}, snapshot(t, b.dir)); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
	if got := b.changes(); len(got) != 3 {
		t.Errorf("changes left: %q", got)
	}
}

func TestKeepOfTwoSandboxesOfOneSource(t *testing.T) {
	b := newBench(t, tree{"state/a": "1", "conf.json": `{"history": 1, "projects": {}}`}, keepRules...)
	r := recordOf(t, b.home, b.dir, "second")
	r.Rules = keepRules
	second := &bench{t: t, home: b.home, dir: b.dir}
	var err error
	if second.box, err = b.home.Create(r); err != nil {
		t.Fatal(err)
	}
	b.agent(func(a *agent) { a.write("/state/a", "first"); a.write("/conf.json", `{"history": 2, "projects": {}}`) })
	second.agent(func(a *agent) {
		a.write("/state/a", "second")
		a.write("/conf.json", `{"history": 1, "projects": {"p": {"history": 3}}}`)
	})
	wantLines(t, b.keep(), "M /conf.json history", "M /state/a")
	wantLines(t, second.keep(), "M /conf.json projects.p.history", "- /state/a: changed in the source since the sandbox saw it")
	want := tree{"state/": "", "state/a": "first", "conf.json": `{"history": 2, "projects": {"p": {"history": 3}}}`}
	got := snapshot(t, b.dir)
	got["conf.json"] = strings.Join(strings.Fields(strings.NewReplacer(":", ": ", "{\n", "{", "\n", "").Replace(got["conf.json"])), " ")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
}

const jsonText = `{
  "history": ["a"],
  "mcpServers": {},
  "n": 1.10
}
`

func TestKeepTakesListedKeysAlone(t *testing.T) {
	b := newBench(t, tree{"conf.json": jsonText}, keepRules...)
	if err := os.Chmod(filepath.Join(b.dir, "conf.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.agent(func(a *agent) {
		a.write("/conf.json", `{"history":["a","b"],"mcpServers":{"evil":{}},"n":1.1,"projects":{"p":{"history":[],"trusted":true}}}`)
	})
	wantLines(t, b.keep(), "M /conf.json history,projects.p.history")
	want := strings.Replace(jsonText, `["a"]`, "[\n    \"a\",\n    \"b\"\n  ]", 1)
	want = strings.Replace(want, "1.10\n", "1.10,\n  \"projects\": {\n    \"p\": {\n      \"history\": []\n    }\n  }\n", 1)
	got, err := os.ReadFile(filepath.Join(b.dir, "conf.json"))
	if diff := cmp.Diff(want, string(got)); diff != "" || err != nil {
		t.Errorf("source, %v (-want +got):\n%s", err, diff)
	}
	if st := statOf(t, filepath.Join(b.dir, "conf.json")); st.Mode&0o777 != 0o600 {
		t.Errorf("its mode is %o", st.Mode)
	}
	// The rest waits, on top of what was kept, and the sandbox goes on with its file.
	if got := b.changes(); !slices.Equal(got, []string{"M /conf.json"}) {
		t.Errorf("changes left: %q", got)
	}
	wantLines(t, b.keep())
	b.agent(func(a *agent) {
		a.write("/conf.json", `{"history":["c"],"mcpServers":{"evil":{}},"n":1.1}`)
	})
	wantLines(t, b.keep(), "M /conf.json history,projects.p.history")
	if r := b.apply(); outcomes(r)["/conf.json"] != apply.Applied {
		t.Errorf("apply of the rest: %+v", r.Paths)
	}
	if got, _ := os.ReadFile(filepath.Join(b.dir, "conf.json")); string(got) != `{"history":["c"],"mcpServers":{"evil":{}},"n":1.1}` {
		t.Errorf("source: %s", got)
	}
}

func TestKeepOfKeysDecidesByThreeVersions(t *testing.T) {
	for _, tt := range []struct {
		name, base, source, ours string
		want                     []string
		after                    string // "": as source
		left                     bool
	}{
		{"only the sandbox changed it", `{"history":1}`, `{"history":1}`, `{"history":2}`, []string{"M /conf.json history"}, `{"history":2}`, false},
		{"the source changed another key", `{"history":1,"x":1}`, `{"history":1,"x":2}`, `{"history":2,"x":1}`, []string{"M /conf.json history"}, `{"history":2,"x":2}`, true},
		{"both changed it", `{"history":1}`, `{"history":3}`, `{"history":2}`, []string{"- /conf.json history: the source has another value by now, or the key cannot be set"}, "", true},
		{"both changed it alike", `{"history":1}`, `{"history":2 }`, `{"history":2}`, nil, "", true},
		{"another key", `{"x":1}`, `{"x":1}`, `{"x":2}`, nil, "", true},
		{"malformed inside", `{"history":1}`, `{"history":1}`, `{"history":2`, []string{"- /conf.json: the sandbox's file: it is not valid JSON"}, "", true},
		{"malformed outside", `{"history":1}`, `{"history"`, `{"history":2}`, []string{"- /conf.json: the source's file: it is not valid JSON"}, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tree{"conf.json": tt.base}, keepRules...)
			b.agent(func(a *agent) { a.write("/conf.json", tt.ours) })
			if tt.source != tt.base {
				build(t, b.dir, tree{"conf.json": tt.source})
			}
			wantLines(t, b.keep(), tt.want...)
			want := tt.after
			if want == "" {
				want = tt.source
			}
			if got := snapshot(t, b.dir)["conf.json"]; got != want {
				t.Errorf("source: %s, want %s", got, want)
			}
			if left := len(b.changes()) > 0; left != tt.left {
				t.Errorf("changes left: %q", b.changes())
			}
		})
	}
}

// What is not a JSON file that both have is never replaced.
func TestKeepOfKeysNeedsAFileOnBothSides(t *testing.T) {
	b := newBench(t, tree{"conf.json": `{"history":1}`, "conf2.json": "-> conf.json", "conf4.json": "x:{}"}, keepRules...)
	b.agent(func(a *agent) {
		a.remove("/conf.json")
		a.remove("/conf2.json")
		a.write("/conf2.json", `{"history":2}`)
		a.write("/conf3.json", `{"history":2}`)
		a.write("/conf4.json", `{"history":2}`)
		a.chmod("/conf4.json", 0o644)
	})
	wantLines(t, b.keep(), "- /conf.json: only keys of it are kept, and it was deleted", "- /conf2.json: only regular files are kept, and it is a symbolic link",
		"- /conf3.json: only keys of it are kept, and the source has no such file", "- /conf4.json: it is executable")
}

const sqlite = "SQLite format 3\x00"

func TestKeepTakesAllFilesOfADatabaseOrNone(t *testing.T) {
	for _, tt := range []struct {
		name   string
		source tree
		do     func(a *agent, b *bench)
		want   []string
	}{
		{"a database that is closed", tree{"x.db": sqlite + "1"}, func(a *agent, _ *bench) { a.write("/x.db", sqlite+"2") }, []string{"M /x.db"}},
		{"with a journal", tree{"x.db": sqlite + "1"}, func(a *agent, _ *bench) {
			a.write("/x.db", sqlite+"2")
			a.write("/x.db-wal", "2")
			a.write("/x.db-shm", "2")
		}, []string{"M /x.db", "A /x.db-shm", "A /x.db-wal"}},
		{"whose journal is removed", tree{"x.db": sqlite + "1", "x.db-wal": "1"}, func(a *agent, _ *bench) { a.write("/x.db", sqlite+"2"); a.remove("/x.db-wal") }, []string{"M /x.db", "D /x.db-wal"}},
		{
			"whose journal the source has too",
			tree{"x.db": sqlite + "1", "x.db-wal": "1"},
			func(a *agent, _ *bench) { a.write("/x.db", sqlite+"2") },
			[]string{"- /x.db: the source has the journal x.db-wal of the database, which the sandbox did not change"},
		},
		{"which the source changed", tree{"x.db": sqlite + "1"}, func(a *agent, b *bench) {
			a.write("/x.db", sqlite+"2")
			a.write("/x.db-wal", "2")
			build(b.t, b.dir, tree{"x.db": sqlite + "3"})
		}, []string{"- /x.db: changed in the source since the sandbox saw it", "- /x.db-wal: the files of a database are kept together, and another one waits"}},
		{"of which the source made a journal", tree{"x.db": sqlite + "1"}, func(a *agent, b *bench) {
			a.write("/x.db", sqlite+"2")
			build(b.t, b.dir, tree{"x.db-journal": "3"})
		}, []string{"- /x.db: the source has the journal x.db-journal of the database, which the sandbox did not change"}},
		{"with an executable journal", tree{"x.db": sqlite + "1"}, func(a *agent, _ *bench) {
			a.write("/x.db", sqlite+"2")
			a.write("/x.db-wal", "2")
			a.chmod("/x.db-wal", 0o755)
		}, []string{"- /x.db: the files of a database are kept together, and x.db-wal waits", "- /x.db-wal: it is marked: runs on the host: executable"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tt.source, keepRules...)
			b.agent(func(a *agent) { tt.do(a, b) })
			wantLines(t, b.keep(), tt.want...)
		})
	}
}

// A program of the host has the database open, and would write to the replaced file.
func TestKeepLeavesADatabaseThatIsInUse(t *testing.T) {
	b := newBench(t, tree{"x.db": sqlite + "1"}, keepRules...)
	b.agent(func(a *agent) { a.write("/x.db", sqlite+"2") })
	f, err := os.Open(filepath.Join(b.dir, "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_RDLCK, Start: 1 << 30, Len: 1}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
		t.Fatal(err)
	}
	wantLines(t, b.keep(), "- /x.db: a program on the host uses the database")
	f.Close()
	wantLines(t, b.keep(), "M /x.db")
}

// In a running sandbox a file that is swapped between the decision and the apply stays.
func TestKeepOfARunningSandbox(t *testing.T) {
	b := newBench(t, tree{"state/a": "1", "state/b": "1", "x.db": sqlite, "conf.json": jsonText}, keepRules...)
	b.agent(func(a *agent) {
		a.write("/state/a", "2")
		a.write("/x.db", sqlite+"2")
		a.write("/x.db-wal", "2")
		a.write("/conf.json", strings.Replace(strings.Replace(jsonText, "{}", "[]", 1), `["a"]`, `[]`, 1))
		drop := func(v []changes.Version) ([]vpath.Path, error) { return changes.DropVersions(a.stack, v) }
		k, err := keep.Keep(t.Context(), b.box, drop)
		a.check(err)
		wantLines(t, keepLines(k), "M /conf.json history", "M /state/a",
			"- /x.db: the database has an open journal, and the sandbox still runs", "- /x.db-wal: the database has an open journal, and the sandbox still runs")
		a.write("/conf.json", strings.Replace(strings.Replace(jsonText, "{}", "[]", 1), `["a"]`, `[3]`, 1))
		k, err = keep.Keep(t.Context(), b.box, drop)
		a.check(err)
		if !slices.Contains(keepLines(k), "M /conf.json history") {
			t.Errorf("the second time: %q", keepLines(k))
		}
	})
	want := tree{"state/": "", "state/a": "2", "state/b": "1", "x.db": sqlite, "conf.json": strings.Replace(jsonText, `["a"]`, "[\n    3\n  ]", 1)}
	if diff := cmp.Diff(want, snapshot(t, b.dir)); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
	if got := b.changes(); !slices.Equal(got, []string{"M /conf.json", "M /x.db", "A /x.db-wal"}) {
		t.Errorf("changes left: %q", got)
	}
}

// Git's files wait in a mount of git's directory, too.
func TestKeepLeavesAMountOfGitsDirectory(t *testing.T) {
	home := openHome(t)
	repo, outer := t.TempDir(), t.TempDir()
	build(t, repo, tree{".git/HEAD": "ref: refs/heads/main", ".git/objects/": "", ".git/refs/": ""})
	r := recordOf(t, home, outer, "outer")
	source := recordOf(t, home, filepath.Join(repo, ".git"), "").Source
	r.Mounts = []record.Mount{{
		Source: source.Path, Target: "/opt/git", Name: "git", Mode: "policy", Dev: source.Dev, Ino: source.Ino, Born: source.Born,
		Rules: []policy.Rule{{Pattern: "/**", Permission: policy.Write, Keep: true}},
	}}
	box, err := home.Create(r)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, home: home, dir: filepath.Join(repo, ".git")}
	if b.box, err = box.InMount("git"); err != nil {
		t.Fatal(err)
	}
	b.agent(func(a *agent) {
		a.write("/refs/x", "1")
		a.write("/config", "evil")
	})
	wantLines(t, b.keep(), "- /config: it is marked: runs on the host: git's configuration", "- /refs/x: git's files are applied as a whole")
	rs, err := review.Open(b.box)
	if err != nil {
		t.Fatal(err)
	}
	defer rs.Close()
	for _, f := range rs.Files() {
		if marked := f.Mark != nil; marked != (f.Path == "/config") {
			t.Errorf("%s: mark %+v", f.Path, f.Mark)
		}
	}
}

// What acts because of the directory in which the source is waits, too: the path below the source
// does not say it.
func TestKeepLeavesWhatActsInTheDirectoryOfTheSource(t *testing.T) {
	keepAll := policy.Rule{Pattern: "/**", Permission: policy.Write, Keep: true}
	home := openHome(t)
	dir := filepath.Join(t.TempDir(), ".claude")
	build(t, dir, tree{"settings.json": "{}", "history.jsonl": "1"})
	source := recordOf(t, home, dir, "").Source
	workspace := &bench{t: t, home: home, dir: dir}
	outer := &bench{t: t, home: home, dir: t.TempDir()}
	var err error
	r := recordOf(t, home, dir, "workspace")
	r.Rules = []policy.Rule{keepAll}
	if workspace.box, err = home.Create(r); err != nil {
		t.Fatal(err)
	}
	// To the other a link of this name leads, where it is mounted.
	linked := &bench{t: t, home: home, dir: t.TempDir()}
	build(t, linked.dir, tree{"settings.json": "{}", "history.jsonl": "1"})
	other := recordOf(t, home, linked.dir, "").Source
	r = recordOf(t, home, outer.dir, "outer")
	r.Mounts = []record.Mount{
		{Source: source.Path, Target: "/opt/data", Name: "data", Mode: "policy", Rules: []policy.Rule{keepAll}, Dev: source.Dev, Ino: source.Ino, Born: source.Born},
		{Source: other.Path, Target: "/home/me/.claude", Name: "linked", Mode: "policy", Rules: []policy.Rule{keepAll}, Dev: other.Dev, Ino: other.Ino, Born: other.Born},
	}
	if outer.box, err = home.Create(r); err != nil {
		t.Fatal(err)
	}
	mount := &bench{t: t, home: home, dir: dir}
	if mount.box, err = outer.box.InMount("data"); err != nil {
		t.Fatal(err)
	}
	if linked.box, err = outer.box.InMount("linked"); err != nil {
		t.Fatal(err)
	}
	for i, b := range []*bench{workspace, mount, linked} {
		b.agent(func(a *agent) {
			a.write("/settings.json", "evil")
			a.write("/history.jsonl", fmt.Sprint("new", i))
		})
		wantLines(t, b.keep(), "M /history.jsonl", "- /settings.json: it is marked: trusted later: settings of an agent")
	}
	if diff := cmp.Diff(tree{"settings.json": "{}", "history.jsonl": "new1"}, snapshot(t, dir)); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
}
