package apply_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/gitpatch"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// patch returns what a server sends of the changes.
func (b *bench) patch(paths ...vpath.Path) string {
	b.t.Helper()
	r, err := review.Open(b.box, paths...)
	if err != nil {
		b.t.Fatal(err)
	}
	defer r.Close()
	var out bytes.Buffer
	for i := range r.Files() {
		if _, err := gitpatch.Write(&out, r, &r.Files()[i]); err != nil {
			b.t.Fatal(err)
		}
	}
	return out.String()
}

func TestPatch(t *testing.T) {
	tests := []struct {
		name   string
		source tree
		agent  func(a *agent)
		want   string
	}{
		{"nothing changed", tree{"f": "1\n"}, func(*agent) {}, ""},
		{"a file only opened for writing", tree{"f": "1\n"}, func(a *agent) { _, err := a.stack.CopyUp("/f"); a.check(err) }, ""},
		{
			"a modified file",
			tree{"f": "1\n"},
			func(a *agent) { a.write("/f", "2\n") },
			"diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-1\n+2\n",
		},
		{
			"a new file",
			tree{},
			func(a *agent) { a.write("/f", "1\n") },
			"diff --git a/f b/f\nnew file mode 100644\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+1\n",
		},
		{
			"an empty new file",
			tree{},
			func(a *agent) { a.write("/f", "") },
			"diff --git a/f b/f\nnew file mode 100644\n",
		},
		{
			"a deleted file",
			tree{"f": "1\n"},
			func(a *agent) { a.remove("/f") },
			"diff --git a/f b/f\ndeleted file mode 100644\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n",
		},
		{
			"a mode alone",
			tree{"f": "1\n"},
			func(a *agent) { a.chmod("/f", 0o600) },
			"diff --git a/f b/f\nold mode 100644\nnew mode 100600\n",
		},
		{
			"a rename with another change is a deletion and an addition",
			tree{"f": "1\n"},
			func(a *agent) { a.rename("/f", "/g"); a.write("/g", "2\n") },
			"diff --git a/f b/f\ndeleted file mode 100644\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n" +
				"diff --git a/g b/g\nnew file mode 100644\n--- /dev/null\n+++ b/g\n@@ -0,0 +1 @@\n+2\n",
		},
		{
			"a link's target",
			tree{"l": "-> old"},
			func(a *agent) { a.remove("/l"); a.symlink("new", "/l") },
			"diff --git a/l b/l\n--- a/l\n+++ b/l\n@@ -1 +1 @@\n-old\n\\ No newline at end of file\n+new\n\\ No newline at end of file\n",
		},
		{
			"a file that became a link",
			tree{"f": "1\n"},
			func(a *agent) { a.remove("/f"); a.symlink("g", "/f") },
			"diff --git a/f b/f\ndeleted file mode 100644\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n" +
				"diff --git a/f b/f\nnew file mode 120000\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+g\n\\ No newline at end of file\n",
		},
		{
			"a binary file",
			tree{"f": "\x00"},
			func(a *agent) { a.write("/f", "\x00\x01") },
			"diff --git a/f b/f\nBinary files a/f and b/f differ\n# binary, 1 to 2 bytes, now with SHA-256 b413f47d13ee2fe6c845b2ee141af81de858df4ec549a58b7970bb96645bc8d2\n",
		},
		{
			"a directory is told by what is in it, an empty one by itself",
			tree{"gone/": ""},
			func(a *agent) { a.mkdir("/d"); a.write("/d/f", ""); a.mkdir("/e"); a.removeAll("/gone") },
			"diff --git a/d/f b/d/f\nnew file mode 100644\n# e: new directory, mode 0755\n# gone: deleted directory\n",
		},
		{
			"special files are told of",
			tree{},
			func(a *agent) { _, err := a.stack.Mknod("/p", unix.S_IFIFO|0o600); a.check(err) },
			"# p: new fifo, mode 0600\n",
		},
		{
			"names that could deceive are quoted",
			tree{},
			func(a *agent) { a.write("/a\n+++ b\x1b[1m", "") },
			`diff --git "a/a\n+++ b\033[1m" "b/a\n+++ b\033[1m"` + "\nnew file mode 100644\n",
		},
		{
			"a name with a space ends in a tab",
			tree{},
			func(a *agent) { a.write("/a b", "1\n") },
			"diff --git a/a b b/a b\nnew file mode 100644\n--- /dev/null\n+++ b/a b\t\n@@ -0,0 +1 @@\n+1\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tt.source)
			b.agent(tt.agent)
			if diff := cmp.Diff(tt.want, b.patch()); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatCanActOnTheHostComesFirst(t *testing.T) {
	b := newBench(t, tree{"f": "1\n"})
	b.agent(func(a *agent) {
		a.mkdir("/.git")
		a.mkdir("/.git/hooks")
		a.write("/a", "")
		a.write("/b.sh", "")
		a.chmod("/b.sh", 0o755)
		a.write("/.git/hooks/post-merge", "")
		a.write("/.envrc", "")
		a.symlink("../../etc", "/out")
		a.rename("/f", "/g")
	})
	r, err := review.Open(b.box)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got []string
	for _, f := range r.Files() {
		line := string(f.Path)
		if f.Mark != nil {
			line += fmt.Sprintf(" %s: %s", f.Mark.Risk, f.Mark.Reason)
		}
		got = append(got, line+strings.TrimRight(fmt.Sprintf(" %s %s", f.RenamedFrom, f.RenamedTo), " "))
	}
	want := []string{
		"/.git/hooks/post-merge runs on the host: git hook", "/b.sh runs on the host: executable",
		"/.envrc trusted later: environment of a directory", "/out trusted later: link out of the source",
		"/a", "/f  /g", "/g /f",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func gitApply(t *testing.T, dir, patch string) error {
	t.Helper()
	cmd := exec.Command("git", "apply", "--whitespace=nowarn", "-")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	cmd.Stdin = strings.NewReader(patch)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Logf("git apply: %v: %s", err, out)
	}
	return err
}

func TestGitAppliesThePatch(t *testing.T) {
	testenv.Command(t, "git")
	source := tree{
		"same": "1\n", "edit": "1\n2\n3\n", "end": "1\n2", "dos": "1\r\n2\r\n", "gone": "1\n", "d/e/f": "1\n", "mode": "x",
		"link": "-> a", "becomes": "1\n", "utf-\xff": "1\n", "a b": "1\n", "escape": "\x1b\n",
	}
	change := func(a *agent) {
		a.write("/edit", "1\ntwo\n3\n")
		a.write("/end", "1\n2\n")
		a.write("/dos", "1\r\nzwei\r\n")
		a.remove("/gone")
		a.removeAll("/d")
		a.mkdir("/n")
		a.write("/n/\"new\"\n", "1\n")
		a.write("/n/empty", "")
		a.chmod("/mode", 0o755)
		a.remove("/link")
		a.symlink("b", "/link")
		a.remove("/becomes")
		a.symlink("c", "/becomes")
		a.write("/utf-\xff", "\xff\n")
		a.write("/a b", "2\n")
	}
	b := newBench(t, source)
	b.agent(change)
	patch := b.patch()
	other := t.TempDir()
	build(t, other, source)
	if err := gitApply(t, other, patch); err != nil {
		t.Fatalf("%v\n%s", err, patch)
	}
	b.apply()
	if diff := cmp.Diff(withoutDirs(snapshot(t, b.dir)), withoutDirs(snapshot(t, other))); diff != "" {
		t.Errorf("git made something else of the patch than apply of the delta (-apply +git):\n%s", diff)
	}
}

// withoutDirs leaves out the directories, which git does not know.
func withoutDirs(t tree) tree {
	files := tree{}
	for name, content := range t {
		if !strings.HasSuffix(name, "/") {
			files[name] = content
		}
	}
	return files
}

func TestDiffIsAgainstWhatTheSandboxSaw(t *testing.T) {
	b := newBench(t, tree{"f": "old\n", "l": "-> old", "big": strings.Repeat("0123456789abcde\n", layer.ContentMax/16+1)})
	b.agent(func(a *agent) { a.write("/f", "new\n"); a.write("/big", "new\n") })
	for _, name := range []string{"/f", "/big"} {
		if err := os.WriteFile(b.dir+name, []byte("mine\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := "diff --git a/big b/big\nBinary files a/big and b/big differ\n# larger than 1048576 bytes, not shown: 1048592 to 4 bytes, now with SHA-256 7aa7a5359173d05b63cfd682e3c38487f3cb4f7f1d60659fe59fab1505977d4c\n" +
		"diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old\n+new\n"
	got := strings.Replace(b.patch(), "what the sandbox saw was not kept: ", "larger than 1048576 bytes, not shown: ", 1)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
}

func TestReviewOfPaths(t *testing.T) {
	b := newBench(t, tree{"a/f": "1\n", "ab": "1\n"})
	b.agent(func(a *agent) { a.write("/a/f", "2\n"); a.write("/ab", "2\n") })
	r, err := review.Open(b.box, "/a")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if files := r.Files(); len(files) != 1 || files[0].Path != "/a/f" {
		t.Errorf("Files = %v", files)
	}
}

func TestAHugeMinifiedLineIsShown(t *testing.T) {
	line := strings.Repeat("x();", textdiff.SizeLimit/4-1)
	b := newBench(t, tree{"min.js": line})
	b.agent(func(a *agent) { a.write("/min.js", line+"y()") })
	if got := b.patch(); !strings.Contains(got, "y()") {
		t.Errorf("the patch of a long line has %d bytes and not the change", len(got))
	}
}

func TestDiscard(t *testing.T) {
	source := tree{"a": "1", "d/e": "1", "d/f": "1"}
	change := func(a *agent) {
		a.write("/a", "2")
		a.rename("/d/e", "/e")
		a.mkdir("/n")
		a.write("/n/g", "2")
	}
	tests := []struct {
		name  string
		paths []vpath.Path
		want  []string // left
	}{
		{"everything", nil, []string{}},
		{"one file", []vpath.Path{"/a"}, []string{"D /d/e", "A /e", "A /n/g"}},
		{"a directory with all below", []vpath.Path{"/n"}, []string{"M /a", "D /d/e", "A /e"}},
		{"the new half of a rename", []vpath.Path{"/e"}, []string{"M /a", "D /d/e", "A /n/g"}},
		{"the old half of a rename", []vpath.Path{"/d/e"}, []string{"M /a", "A /e", "A /n/g"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, source)
			b.agent(change)
			dry, err := apply.Discard(b.box, apply.DiscardOptions{Paths: tt.paths, DryRun: true})
			if err != nil || len(b.changes()) != 4 {
				t.Fatalf("a dry run: %v, left %q", err, b.changes())
			}
			got, err := apply.Discard(b.box, apply.DiscardOptions{Paths: tt.paths})
			if err != nil || !cmp.Equal(dry, got) {
				t.Errorf("Discard = %v, %v, its dry run %v", got, err, dry)
			}
			if diff := cmp.Diff(tt.want, b.changes()); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
			b.apply()
		})
	}
	t.Run("a file of a deleted directory comes back alone", func(t *testing.T) {
		b := newBench(t, source)
		b.agent(func(a *agent) { a.removeAll("/d") })
		if _, err := apply.Discard(b.box, apply.DiscardOptions{Paths: []vpath.Path{"/d/e"}}); err != nil {
			t.Fatal(err)
		}
		b.apply()
		if diff := cmp.Diff(tree{"a": "1", "d/": "", "d/e": "1"}, snapshot(t, b.dir)); diff != "" {
			t.Errorf("source (-want +got):\n%s", diff)
		}
	})
}

func TestASandboxThatNeverRanHasNoChanges(t *testing.T) {
	b := newBench(t, tree{"f": "1"})
	if got := b.changes(); len(got) != 0 {
		t.Errorf("changes = %q", got)
	}
	b.apply()
}
