package branch_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/branch"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// desk is a repository and a sandbox of a directory in it.
type desk struct {
	t   *testing.T
	top string // of the repository
	box *record.Sandbox
}

// setUp makes a repository of files in HEAD, and a sandbox of the directory sub of it.
func setUp(t *testing.T, sub string, files map[string]string) *desk {
	t.Helper()
	testenv.Command(t, "git")
	d := &desk{t: t, top: t.TempDir()}
	t.Setenv("HOME", t.TempDir())
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		t.Setenv("GIT_"+who+"_NAME", "A U Thor")
		t.Setenv("GIT_"+who+"_EMAIL", "author@example.com")
	}
	d.git("init", "-q", "-b", "main", ".")
	for name, text := range files {
		d.write(name, text)
	}
	if len(files) > 0 {
		d.git("add", "-A", "-f")
		d.git("commit", "-q", "-m", "first")
	}
	home, err := record.OpenHomeAt(filepath.Join(t.TempDir(), "home"))
	if err != nil {
		t.Fatal(err)
	}
	source, err := home.ResolveSource(filepath.Join(d.top, sub))
	if err != nil {
		t.Fatal(err)
	}
	d.box, err = home.Create(record.Record{
		Name: "fix", Source: source, Workspace: string(source.Path), Runtime: "bwrap", Net: "none",
		Rules: []policy.Rule{{Pattern: "**", Permission: policy.Write, Source: "test"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *desk) write(name, text string) {
	d.t.Helper()
	path := filepath.Join(d.top, name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) git(args ...string) string {
	d.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = d.top
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// agent changes files as a program inside would: "" removes a file.
func (d *desk) agent(files map[vpath.Path]string) {
	d.t.Helper()
	source, err := d.box.Record().Source.Open()
	if err != nil {
		d.t.Fatal(err)
	}
	defer source.Close()
	stack, err := layer.Open(layer.Options{Source: source, Dir: d.box.LayersDir()})
	if err != nil {
		d.t.Fatal(err)
	}
	defer stack.Close()
	for _, p := range slices.Sorted(maps.Keys(files)) {
		if text := files[p]; text == "" {
			if _, err := stack.Unlink(p, false); err != nil {
				d.t.Fatal(err)
			}
		} else {
			put(d.t, stack, p, text)
		}
	}
}

func put(t *testing.T, stack *layer.Stack, p vpath.Path, text string) {
	t.Helper()
	if _, err := stack.Lookup(p.Dir()); err != nil {
		if _, err := stack.Mkdir(p.Dir(), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f, _, err := stack.Open(p, true)
	if err != nil {
		f, _, err = stack.Create(p, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(text), 0); err != nil {
		t.Fatal(err)
	}
	size := int64(len(text))
	if _, err := stack.SetAttr(p, layer.SetAttr{Size: &size}); err != nil {
		t.Fatal(err)
	}
}

// commit commits to the branch "made", and returns the outcome of each path.
func (d *desk) commit() (map[string]apply.Outcome, error) {
	d.t.Helper()
	r, err := branch.Commit(d.t.Context(), d.box, branch.Options{Branch: "made"})
	got := map[string]apply.Outcome{}
	for _, p := range r.Listed() {
		got[string(p.Path)] = p.Outcome
	}
	return got, err
}

func TestACommitIsHeadWithTheChanges(t *testing.T) {
	for _, tt := range []struct {
		name  string
		sub   string
		head  map[string]string
		dirty map[string]string // written to the work tree after the commit
		agent map[vpath.Path]string
		// outcomes are those that are not Applied; conflict says that they stop the commit.
		outcomes map[string]apply.Outcome
		conflict bool
		want     string // git's list of the changes
	}{
		{
			name: "a file that is new, changed or deleted", head: map[string]string{"a": "1\n", "b": "1\n"},
			agent: map[vpath.Path]string{"/a": "2\n", "/b": "", "/d/c": "1\n"}, want: "M\ta\nD\tb\nA\td/c",
		},
		{
			name: "a source that is a directory of the repository", sub: "sub", head: map[string]string{"a": "1\n", "sub/a": "1\n"},
			agent: map[vpath.Path]string{"/a": "2\n", "/b": "1\n"}, want: "M\tsub/a\nA\tsub/b",
		},
		{
			name: "a file that git does not track", head: map[string]string{"a": "1\n"}, dirty: map[string]string{"b": "1\n"},
			agent:    map[vpath.Path]string{"/b": "2\n", "/a": "2\n"},
			outcomes: map[string]apply.Outcome{"/b": apply.Conflict, "/a": apply.Skipped}, conflict: true,
		},
		{
			name: "an ignored file", head: map[string]string{"a": "1\n", ".gitignore": "*.o\n"}, dirty: map[string]string{"b.o": "1\n"},
			agent:    map[vpath.Path]string{"/b.o": "2\n", "/c.o": "1\n", "/a": "2\n"},
			outcomes: map[string]apply.Outcome{"/b.o": apply.LeftOut, "/c.o": apply.LeftOut}, want: "M\ta",
		},
		{
			name: "a file that git tracks although it is ignored", head: map[string]string{"a.o": "1\n", ".gitignore": "*.o\n"},
			agent: map[vpath.Path]string{"/a.o": "2\n"}, want: "M\ta.o",
		},
		{
			name: "a deleted file that HEAD has in another version", head: map[string]string{"a": "1\n"}, dirty: map[string]string{"a": "3\n"},
			agent: map[vpath.Path]string{"/a": ""}, outcomes: map[string]apply.Outcome{"/a": apply.Conflict}, conflict: true,
		},
		{
			name: "what HEAD has already", head: map[string]string{"a": "2\n", "b": "1\n"}, dirty: map[string]string{"a": "1\n"},
			agent: map[vpath.Path]string{"/a": "2\n", "/b": "2\n"}, outcomes: map[string]apply.Outcome{"/a": apply.Present}, want: "M\tb",
		},
		{
			name: "a name with a colon, a quote and a newline", head: map[string]string{"a": "1\n"},
			agent: map[vpath.Path]string{"/:!a\"\n": "1\n"}, want: `A	":!a\"\n"`,
		},
		{
			name: "a file of a nested repository", head: map[string]string{"a": "1\n"},
			agent:    map[vpath.Path]string{"/n/.GIT": "1\n", "/a": "2\n"},
			outcomes: map[string]apply.Outcome{"/n/.GIT": apply.LeftOut}, want: "M\ta",
		},
		{
			name: "the first commit of a repository", agent: map[vpath.Path]string{"/a": "1\n"}, want: "A\ta",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := setUp(t, tt.sub, tt.head)
			for name, text := range tt.dirty {
				d.write(name, text)
			}
			d.agent(tt.agent)
			before := d.git("status", "--porcelain")
			got, err := d.commit()
			if errdefs.Is(err, errdefs.Precondition) != tt.conflict || err != nil && !tt.conflict {
				t.Fatalf("error %v", err)
			}
			want := map[string]apply.Outcome{}
			for p := range tt.agent {
				want[string(p)] = apply.Applied
			}
			maps.Copy(want, tt.outcomes)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
			if after := d.git("status", "--porcelain"); after != before {
				t.Errorf("the work tree was %q, is %q", before, after)
			}
			if tt.conflict {
				if out := d.git("branch", "--list", "made"); out != "" {
					t.Errorf("a branch was made")
				}
				return
			}
			d.git("fsck", "--strict")
			base := "main"
			if len(tt.head) == 0 {
				base = d.git("hash-object", "-t", "tree", "/dev/null")
			}
			if diff := cmp.Diff(tt.want, d.git("diff", "--name-status", "--no-renames", base, "made")); diff != "" {
				t.Errorf("the commit (-want +got):\n%s", diff)
			}
		})
	}
}

// A file of the work tree that replaced a directory of HEAD, and the reverse.
func TestWhatIsInTheWayInHead(t *testing.T) {
	d := setUp(t, "", map[string]string{"dir/a": "1\n", "file": "1\n"})
	d.git("update-index", "--add", "--cacheinfo", "160000,"+d.git("rev-parse", "HEAD")+",module")
	d.git("commit", "-q", "-m", "a submodule")
	for _, name := range []string{"dir", "file"} {
		if err := os.RemoveAll(filepath.Join(d.top, name)); err != nil {
			t.Fatal(err)
		}
	}
	d.agent(map[vpath.Path]string{"/dir": "1\n", "/file/a": "1\n", "/module/a": "1\n"})
	got, err := d.commit()
	want := map[string]apply.Outcome{"/dir": apply.Conflict, "/file/a": apply.Conflict, "/module/a": apply.Conflict}
	if diff := cmp.Diff(want, got); diff != "" || !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("%v, outcomes (-want +got):\n%s", err, diff)
	}
}

func TestADirectoryInPlaceOfALink(t *testing.T) {
	d := setUp(t, "", map[string]string{"dir/a": "1\n"})
	if err := os.Symlink("dir", filepath.Join(d.top, "link")); err != nil {
		t.Fatal(err)
	}
	d.git("add", "link")
	d.git("commit", "-q", "-m", "a link")
	d.agent(map[vpath.Path]string{"/link": ""})
	d.agent(map[vpath.Path]string{"/link/a": "2\n"})
	if _, err := d.commit(); err != nil {
		t.Fatal(err)
	}
	if got := d.git("diff", "--name-status", "--no-renames", "main", "made"); got != "D\tlink\nA\tlink/a" {
		t.Errorf("the commit has %q", got)
	}
}

// A linked work tree has its HEAD, and its .git is a file.
func TestALinkedWorkTree(t *testing.T) {
	d := setUp(t, "", map[string]string{"a": "1\n"})
	linked := filepath.Join(t.TempDir(), "linked")
	d.git("worktree", "add", "-q", "-b", "other", linked)
	source, err := d.box.Home.ResolveSource(linked)
	if err != nil {
		t.Fatal(err)
	}
	r := d.box.Record()
	r.Name, r.Source, r.Workspace = "linked", source, string(source.Path)
	if d.box, err = d.box.Home.Create(r); err != nil {
		t.Fatal(err)
	}
	d.agent(map[vpath.Path]string{"/a": "2\n"})
	if _, err := d.commit(); err != nil {
		t.Fatal(err)
	}
	if got := d.git("diff", "--name-status", "other", "made"); got != "M\ta" {
		t.Errorf("the commit has %q", got)
	}
}

// A repository above the source that another user has put there gets nothing.
func TestARepositoryOfAnotherUserIsRefused(t *testing.T) {
	testenv.Root(t) // it makes files of another user
	d := setUp(t, "sub", map[string]string{"sub/a": "1\n"})
	d.agent(map[vpath.Path]string{"/a": "2\n"})
	if err := os.Chown(filepath.Join(d.top, ".git"), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if _, err := d.commit(); !errdefs.Is(err, errdefs.Precondition) || !strings.Contains(err.Error(), "belongs to uid 65534") {
		t.Errorf("got %v", err)
	}
	// A file of the right owner can name such a repository.
	if err := os.Rename(filepath.Join(d.top, ".git"), filepath.Join(d.top, "other")); err != nil {
		t.Fatal(err)
	}
	d.write(".git", "gitdir: "+filepath.Join(d.top, "other")+"\n")
	if _, err := d.commit(); !errdefs.Is(err, errdefs.Precondition) || !strings.Contains(err.Error(), "belongs to uid 65534") {
		t.Errorf("named by a file: %v", err)
	}
}
