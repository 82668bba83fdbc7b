package branch_test

import (
	"bytes"
	"compress/zlib"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/attest"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/branch"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
)

// attested commits what the sandbox has to the branch "made", and returns the statement.
func (d *desk) attested() *attest.Statement {
	d.t.Helper()
	digest, shown, err := attest.Choose(d.box, "", false)
	if err != nil {
		d.t.Fatal(err)
	}
	r, err := branch.Commit(d.t.Context(), d.box, branch.Options{Options: apply.Options{Reviewed: digest}, Branch: "made", Shown: shown})
	if err != nil {
		d.t.Fatal(err)
	}
	text, err := r.Attest(d.box, shown, attest.About{Time: time.Now(), Reviewed: digest})
	if err != nil {
		d.t.Fatal(err)
	}
	st, err := attest.Parse(text)
	if err != nil {
		d.t.Fatalf("%v\n%s", err, text)
	}
	return st
}

// check returns what is wrong with the commit "made", or another revision.
func (d *desk) check(st *attest.Statement, revision string) string {
	d.t.Helper()
	differ, err := st.CheckCommit(d.t.Context(), d.top, revision)
	if err != nil {
		d.t.Fatal(err)
	}
	return strings.Join(differ, "\n")
}

func TestAnAttestedCommitIsWhatItsStatementSays(t *testing.T) {
	for _, tt := range []struct {
		name, sub string
		head      map[string]string
		agent     map[vpath.Path]string
		changes   int
	}{
		{
			name: "new, changed, deleted", head: map[string]string{"a": "1\n", "b": "1\n", "x/y/z": "1\n", "x/k": "1\n"},
			agent: map[vpath.Path]string{"/a": "2\n", "/b": "", "/d/c": "1\n", "/x/y/z": ""}, changes: 4,
		},
		{
			name: "a directory of the repository", sub: "sub", head: map[string]string{"a": "1\n", "sub/a": "1\n"},
			agent: map[vpath.Path]string{"/a": "2\n", "/b": "1\n"}, changes: 2,
		},
		{name: "the first commit", agent: map[vpath.Path]string{"/a": "1\n", "/d/b": "1\n"}, changes: 2},
		{
			name: "names of odd bytes", head: map[string]string{"a": "1\n"},
			agent: map[vpath.Path]string{"/:!a\"\n": "1\n", "/\xff": "1\n"}, changes: 2,
		},
		{
			name: "what HEAD has not, and an ignored file", head: map[string]string{".gitignore": "*.o\n"},
			agent: map[vpath.Path]string{"/a.o": "1\n", "/a": "1\n"}, changes: 1,
		},
		{
			name: "a directory in place of a file", head: map[string]string{"a": "1\n", "k": "1\n"},
			agent: map[vpath.Path]string{"/a": "", "/a/b": "1\n"}, changes: 2,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := setUp(t, tt.sub, tt.head)
			if tt.name == "a directory in place of a file" {
				d.agent(map[vpath.Path]string{"/a": ""})
				delete(tt.agent, "/a")
			}
			d.agent(tt.agent)
			st := d.attested()
			if got := d.check(st, "made"); got != "" || len(st.Predicate.Changes) != tt.changes {
				t.Errorf("%s\n%+v", got, st.Predicate.Changes)
			}
			if _, err := st.CheckLog(d.box.AuditPath()); err != nil {
				t.Error(err)
			}
			st.Predicate.Commit.ID = strings.Repeat("0", 40)
			if _, err := st.CheckLog(d.box.AuditPath()); !errdefs.Is(err, errdefs.Invalid) {
				t.Errorf("a commit that the log does not have: %v", err)
			}
		})
	}
}

// Whoever makes a statement about another commit, and signs it, does not get it past the check.
func TestACommitWithAnythingElseIsFound(t *testing.T) {
	for name, tt := range map[string]struct {
		alter func(d *desk) // with "made" checked out
		want  string
	}{
		"nothing else":    {func(*desk) {}, ""},
		"a message":       {func(d *desk) { d.git("commit", "-q", "--amend", "-m", "x") }, ""},
		"a smuggled file": {func(d *desk) { d.write("s/t", "1\n"); d.amend() }, "/s/t: the commit changes it, and it was not applied"},
		"a changed file":  {func(d *desk) { d.write("k", "2\n"); d.amend() }, "/k: the commit changes it, and it was not applied"},
		"a deleted file":  {func(d *desk) { d.git("rm", "-q", "k"); d.amend() }, "/k: the commit changes it, and it was not applied"},
		"a submodule": {func(d *desk) {
			d.git("update-index", "--add", "--cacheinfo", "160000,"+d.git("rev-parse", "main")+",m")
			d.amendIndex()
		}, "/m: the commit changes it, and it was not applied"},
		"a byte of a file":        {func(d *desk) { d.write("a", "3\n"); d.amend() }, "/a: has another content in the commit"},
		"a mode":                  {func(d *desk) { d.git("update-index", "--chmod=+x", "a"); d.amendIndex() }, "/a: has the mode 100755 in the commit, not 100644"},
		"a link for a file":       {func(d *desk) { d.link("2\n", "a"); d.amend() }, "/a: has the mode 120000 in the commit, not 100644"},
		"a change less":           {func(d *desk) { d.git("checkout", "-q", "main", "--", "a"); d.amend() }, "/a: the commit does not change it"},
		"a file that was deleted": {func(d *desk) { d.write("b", "2\n"); d.amend() }, "/b: was deleted, and the commit has it"},
		"a new file that is away": {func(d *desk) { d.git("rm", "-q", "d/c"); d.amend() }, "/d/c: the commit does not change it"},
	} {
		t.Run(name, func(t *testing.T) {
			d := setUp(t, "", map[string]string{"a": "1\n", "b": "1\n", "k": "1\n"})
			d.agent(map[vpath.Path]string{"/a": "2\n", "/b": "", "/d/c": "1\n"})
			st := d.attested()
			d.git("checkout", "-q", "made")
			tt.alter(d)
			now := d.git("rev-parse", "HEAD")
			if now != st.Predicate.Commit.ID {
				want := "HEAD is the commit " + now + ", and the statement is about " + st.Predicate.Commit.ID
				if got := d.check(st, "HEAD"); got != want {
					t.Errorf("as signed: %q", got)
				}
			}
			st.Predicate.Commit.ID = now
			if got := d.check(st, "HEAD"); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func (d *desk) amend() {
	d.git("add", "-A")
	d.amendIndex()
}

func (d *desk) amendIndex() { d.git("commit", "-q", "--amend", "-m", "x") }

func (d *desk) link(target, name string) {
	path := filepath.Join(d.top, name)
	if err := os.Remove(path); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		d.t.Fatal(err)
	}
}

// The record may lack what the sandbox had if an earlier version made it. Then nothing is applied.
func TestARecordThatLacksWhatTheLogHasIsNotAttested(t *testing.T) {
	d := setUp(t, "", map[string]string{"a": "1\n"})
	d.agent(map[vpath.Path]string{"/a": "2\n"})
	if err := d.box.Log(audit.HostsChanged{Granted: []audit.Text{"example.com:443"}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := attest.Choose(d.box, "", false); !errdefs.Is(err, errdefs.Invalid) || !strings.Contains(err.Error(), "nothing was applied") {
		t.Errorf("got %v, want Invalid", err)
	}
}

func TestACommitHasTheParentOfItsStatement(t *testing.T) {
	d := setUp(t, "", map[string]string{"a": "1\n"})
	d.agent(map[vpath.Path]string{"/a": "2\n"})
	st := d.attested()
	head := d.git("rev-parse", "main")
	tree := d.git("rev-parse", "made^{tree}")
	same := d.git("commit-tree", d.git("rev-parse", "main^{tree}"), "-m", "same files")
	for name, parents := range map[string][]string{
		"another": {"-p", same}, "two": {"-p", head, "-p", same}, "none": nil,
	} {
		st.Predicate.Commit.ID = d.git(append([]string{"commit-tree", tree, "-m", "x"}, parents...)...)
		if got := d.check(st, st.Predicate.Commit.ID); !strings.Contains(got, "the commit has the parents") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A repository in which an object is not what its id says, is found out.
func TestADamagedObjectIsFound(t *testing.T) {
	for _, what := range []string{"made^{commit}", "made^{tree}", "made:d", "made:a"} {
		t.Run(what, func(t *testing.T) {
			d := setUp(t, "", map[string]string{"a": "1\n", "b": "1\n"})
			d.agent(map[vpath.Path]string{"/a": "2\n", "/d/c": "1\n"})
			st := d.attested()
			id := d.git("rev-parse", what)
			kind := d.git("cat-file", "-t", id)
			other := map[string]string{"commit": "main^{commit}", "tree": "main^{tree}", "blob": "main:a"}[kind]
			path := filepath.Join(d.top, ".git/objects", id[:2], id[2:])
			body := d.raw("cat-file", kind, d.git("rev-parse", other))
			var packed bytes.Buffer
			z := zlib.NewWriter(&packed)
			fmt.Fprintf(z, "%s %d\x00%s", kind, len(body), body)
			if err := z.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, packed.Bytes(), 0o444); err != nil {
				t.Fatal(err)
			}
			differ, err := st.CheckCommit(t.Context(), d.top, st.Predicate.Commit.ID)
			if got := fmt.Sprint(differ, err); !strings.Contains(got, id) { // git may find it first
				t.Errorf("got %s", got)
			}
		})
	}
}

// Trees that git itself does not make could show one reader another file than the next.
func TestAMalformedTreeIsRefused(t *testing.T) {
	d := setUp(t, "", map[string]string{"a": "1\n"})
	d.agent(map[vpath.Path]string{"/a": "2\n"})
	st := d.attested()
	blob, err := rawID(d.git("rev-parse", "made:a"))
	if err != nil {
		t.Fatal(err)
	}
	entry := func(mode, name string) string { return mode + " " + name + "\x00" + blob }
	empty, err := rawID(d.object("tree", ""))
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string]string{
		"a name twice":       entry("100644", "a") + entry("100644", "a"),
		"out of order":       entry("100644", "b") + entry("100644", "a"),
		"a slash":            entry("100644", "a") + entry("100644", "b/c"),
		"an empty name":      entry("100644", "") + entry("100644", "a"),
		"cut off":            entry("100644", "a") + "100644 b\x00x",
		"an empty directory": entry("100644", "a") + "40000 e\x00" + empty,
	} {
		tree := d.object("tree", body)
		st.Predicate.Commit.ID = d.git("commit-tree", tree, "-m", "x", "-p", "main")
		if got := d.check(st, st.Predicate.Commit.ID); !strings.Contains(got, "malformed") && !strings.Contains(got, "empty directory") && !strings.Contains(got, "git cat-file") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A commit that is to be attested has nothing that was not shown, whatever the review says.
func TestAnAttestedCommitHasOnlyWhatWasShown(t *testing.T) {
	d := setUp(t, "", map[string]string{"a": "1\n", "b": "1\n"})
	d.agent(map[vpath.Path]string{"/a": "2\n", "/b": "", "/c": "1\n"})
	digest, shown, err := attest.Choose(d.box, "", false)
	if err != nil {
		t.Fatal(err)
	}
	entry := shown["/a"]
	entry.SHA256 = strings.Repeat("0", 64)
	less := manifest.Manifest{"/a": entry, "/b": shown["/b"]}
	r, err := branch.Commit(t.Context(), d.box, branch.Options{Options: apply.Options{Reviewed: digest}, Branch: "made", Shown: less})
	if err != nil {
		t.Fatal(err)
	}
	got := map[vpath.Path]apply.Outcome{}
	for _, p := range r.Paths {
		got[p.Path] = p.Outcome
	}
	want := map[vpath.Path]apply.Outcome{"/a": apply.ChangedSinceReview, "/b": apply.Applied, "/c": apply.ChangedSinceReview}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := d.git("diff", "--name-status", "main", "made"); got != "D\tb" {
		t.Errorf("the commit has %q", got)
	}
}

func rawID(id string) (string, error) {
	b, err := hex.DecodeString(id)
	return string(b), err
}

// raw is git without trimming the output.
func (d *desk) raw(args ...string) string {
	d.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = d.top
	out, err := cmd.Output()
	if err != nil {
		d.t.Fatal(err)
	}
	return string(out)
}

// object stores an object, also a malformed one, and returns its id.
func (d *desk) object(kind, body string) string {
	d.t.Helper()
	cmd := exec.Command("git", "hash-object", "-w", "--literally", "-t", kind, "--stdin")
	cmd.Dir, cmd.Stdin = d.top, strings.NewReader(body)
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("git hash-object: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}
