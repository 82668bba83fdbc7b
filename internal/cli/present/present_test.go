package present_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

const (
	plainFile = unix.S_IFREG | 0o644
	program   = unix.S_IFREG | 0o755
	symlink   = unix.S_IFLNK | 0o777
)

// change is a changed path: the content of a file, or the target of a link, before and
// after. A mode of 0 is an absence.
type change struct {
	path            vpath.Path
	wasMode, isMode uint32
	was, is         string
	mark            *review.RiskFlag
	edit            func(*review.FileDiff) // nil: no more
}

func added(p vpath.Path, is string) change { return change{path: p, isMode: plainFile, is: is} }

func modified(p vpath.Path, was, is string) change {
	return change{path: p, wasMode: plainFile, isMode: plainFile, was: was, is: is}
}

func side(mode uint32, content string) *review.Side {
	if mode == 0 {
		return nil
	}
	s := &review.Side{Mode: mode, SizeBytes: int64(len(content))}
	if mode == symlink {
		s.Target = content
	}
	return s
}

// reviewOf is a review of the changes.
func reviewOf(list ...change) *review.Review {
	files := make([]review.FileDiff, len(list))
	byPath := map[vpath.Path]change{}
	for i, c := range list {
		f := review.FileDiff{Path: c.path, Status: changes.Modified, Old: side(c.wasMode, c.was), New: side(c.isMode, c.is), Mark: c.mark}
		switch {
		case f.Old == nil:
			f.Status = changes.Added
		case f.New == nil:
			f.Status = changes.Deleted
		case c.wasMode&unix.S_IFMT != c.isMode&unix.S_IFMT:
			f.Status = changes.Retyped
		}
		if c.edit != nil {
			c.edit(&f)
		}
		files[i], byPath[c.path] = f, c
	}
	return review.Of("fix", "sb_0123456789abcdef", "", "", files, nil, func(f *review.FileDiff) (review.Content, error) {
		var before, after string
		var c review.Content
		if f.Old != nil {
			before = byPath[f.Path].was
		}
		if f.New != nil {
			after = byPath[f.Path].is
			sum := sha256.Sum256([]byte(after))
			c.SHA256 = hex.EncodeToString(sum[:])
		}
		if textdiff.IsBinary([]byte(before)) || textdiff.IsBinary([]byte(after)) {
			c.Binary = true
			return c, nil
		}
		c.Hunks = textdiff.Hunks([]byte(before), []byte(after))
		c.Inserted, c.Deleted = textdiff.Count(c.Hunks)
		return c, nil
	})
}

func patchOf(t *testing.T, r *review.Review, o present.PatchOptions) string {
	t.Helper()
	var out bytes.Buffer
	if err := present.Patch(&out, r, o); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestPatch(t *testing.T) {
	tests := []struct {
		name    string
		changes []change
		want    string
	}{
		{"nothing changed", nil, ""},
		{
			"a modified file",
			[]change{modified("/f", "1\n", "2\n")},
			"diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-1\n+2\n",
		},
		{
			"a file that became a link",
			[]change{{path: "/f", wasMode: plainFile, was: "1\n", isMode: symlink, is: "g"}},
			"diff --git a/f b/f\ndeleted file mode 100644\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n" +
				"diff --git a/f b/f\nnew file mode 120000\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+g\n\\ No newline at end of file\n",
		},
		{
			"special files are told of",
			[]change{{path: "/p", isMode: unix.S_IFIFO | 0o600}},
			"# p: new fifo, mode 0600\n",
		},
		{
			"a rename is one change",
			[]change{
				{path: "/f", wasMode: plainFile, was: "1\n", edit: func(f *review.FileDiff) { f.RenamedTo = "/g" }},
				{path: "/g", isMode: plainFile, is: "1\n", edit: func(f *review.FileDiff) { f.RenamedFrom = "/f" }},
			},
			"diff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g\n",
		},
		{
			"contents that could deceive are escaped, and then it is no patch",
			[]change{added("/f", "\x1b[2Jok\u202e\n")},
			"diff --git a/f b/f\nnew file mode 100644\n--- /dev/null\n+++ b/f\n" +
				"# control characters are shown escaped: this is no patch\n@@ -0,0 +1 @@\n+\\x1b[2Jok\\u{202e}\n",
		},
		{
			"what the source has changed since, what cannot be applied and what no apply takes",
			[]change{
				{path: "/a", isMode: plainFile, edit: func(f *review.FileDiff) { f.LeftOut = "own entry" }},
				{path: "/b", isMode: plainFile, edit: func(f *review.FileDiff) { f.NotPlaced, f.Stale = "read-only", true }},
			},
			"# b: cannot be applied: read-only\n# the source has changed since: b\ndiff --git a/b b/b\nnew file mode 100644\n# a: own entry\n",
		},
		{
			"what can act on the host comes first",
			[]change{
				added("/a", ""),
				{path: "/b.sh", isMode: program, mark: &review.RiskFlag{Risk: review.RunsOnHost, Reason: "executable"}},
				{path: "/out", isMode: symlink, is: "../../etc", mark: &review.RiskFlag{Risk: review.TrustedLater, Reason: "link out of the source"}},
			},
			"# runs on the host: b.sh (executable)\n# trusted later: out (link out of the source)\n\n" +
				"diff --git a/b.sh b/b.sh\nnew file mode 100755\n" +
				"diff --git a/out b/out\nnew file mode 120000\n--- /dev/null\n+++ b/out\n@@ -0,0 +1 @@\n+../../etc\n\\ No newline at end of file\n" +
				"diff --git a/a b/a\nnew file mode 100644\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, patchOf(t, reviewOf(tt.changes...), present.PatchOptions{})); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGitTakesTheRawPatchAlone: an escape in place of what it shows would be applied
// without notice.
func TestGitTakesTheRawPatchAlone(t *testing.T) {
	testenv.Command(t, "git")
	dir := t.TempDir()
	for name, content := range map[string]string{"edit": "1\n", "escape": "\x1b\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	apply := func(o present.PatchOptions) error {
		cmd := exec.CommandContext(t.Context(), "git", "apply", "-")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
		cmd.Stdin = strings.NewReader(patchOf(t, reviewOf(modified("/edit", "1\n", "2\n"), modified("/escape", "\x1b\n", "\x1b2\n")), o))
		return cmd.Run()
	}
	if err := apply(present.PatchOptions{}); err == nil {
		t.Error("git applied a patch whose contents are escaped")
	}
	if got, err := os.ReadFile(filepath.Join(dir, "edit")); err != nil || string(got) != "1\n" {
		t.Errorf("git applied a part of it: %q, %v", got, err)
	}
	if err := apply(present.PatchOptions{Raw: true}); err != nil {
		t.Errorf("git apply of the raw patch: %v", err)
	}
}

func TestColourIsOnlyAdded(t *testing.T) {
	envrc := added("/.envrc", "x")
	envrc.mark = &review.RiskFlag{Risk: review.TrustedLater, Reason: "environment of a directory"}
	r := reviewOf(modified("/f", "1\n2", "1\n3\n"), envrc)
	coloured := patchOf(t, r, present.PatchOptions{Colour: true})
	for _, code := range []string{"\x1b[m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[36m"} {
		if !strings.Contains(coloured, code) {
			t.Errorf("the patch has no %q", code)
		}
		coloured = strings.ReplaceAll(coloured, code, "")
	}
	if diff := cmp.Diff(patchOf(t, r, present.PatchOptions{}), coloured); diff != "" {
		t.Errorf("without the colours (-plain +coloured):\n%s", diff)
	}
}

func TestStatAndNameStatus(t *testing.T) {
	r := reviewOf(
		change{path: "/README.md", wasMode: plainFile, was: "1\n"},
		modified("/m", "1\n2\n3\n", "1\n4\n5\n6\n"),
		modified("/b", "\x00", "\x00\x00"),
		change{path: "/run\x1b", isMode: program, is: "#!\n", mark: &review.RiskFlag{Risk: review.RunsOnHost, Reason: "executable"}},
	)
	var names, stat bytes.Buffer
	if err := present.NameStatus(&names, r); err != nil {
		t.Fatal(err)
	}
	if want := "A\trun\\x1b\nD\tREADME.md\nM\tb\nM\tm\n"; names.String() != want {
		t.Errorf("name-status = %q, want %q", names.String(), want)
	}
	if err := present.Stat(&stat, r, false); err != nil {
		t.Fatal(err)
	}
	want := " run\\x1b   | 1 +  [runs on the host: executable]\n README.md | 1 -\n b         | Bin 1 -> 2 bytes\n m         | 5 +++--\n" +
		" 4 files changed, 4 inserted, 3 deleted\n"
	if diff := cmp.Diff(want, stat.String()); diff != "" {
		t.Errorf("stat (-want +got):\n%s", diff)
	}
}

func TestJSON(t *testing.T) {
	r := reviewOf(
		modified("/f", "1\n", "2\n\xff"),
		change{path: "/l", isMode: symlink, is: "/etc\xff", mark: &review.RiskFlag{Risk: review.TrustedLater, Reason: "link out of the source"}},
	)
	var got struct {
		SchemaVersion       int `json:"schema_version"`
		Sandbox, ID, Digest string
		Files               []struct {
			Path, Status string
			Risk         string
			RiskReason   string `json:"risk_reason"`
			Old, New     *struct {
				Mode   string
				Target string `json:"symlink_target"`
			}
			Inserted int
			Hunks    []struct{ Lines []map[string]string }
		}
	}
	var text bytes.Buffer
	digest, err := present.JSON(&text, r, func() (string, error) { return "abc", nil })
	if err != nil || digest != "abc" {
		t.Fatalf("JSON = %q, %v", digest, err)
	}
	if err := json.Unmarshal(text.Bytes(), &got); err != nil {
		t.Fatalf("%v\n%s", err, &text)
	}
	if got.SchemaVersion != 2 || got.Sandbox != "fix" || got.ID != "sb_0123456789abcdef" || got.Digest != digest || len(got.Files) != 2 {
		t.Fatalf("JSON is %s", &text)
	}
	link, file := got.Files[0], got.Files[1]
	if link.Path != "l" || link.Status != "added" || link.Old != nil || link.New.Target != `/etc\xff` || link.Risk != "trusted_later" || link.RiskReason != "link out of the source" {
		t.Errorf("link = %+v", link)
	}
	wantLines := []map[string]string{{"op": "-", "text": "1\n"}, {"op": "+", "text": "2\n"}, {"op": "+", "base64": "/w=="}}
	if file.Path != "f" || file.Old.Mode != "100644" || file.Inserted != 2 || !cmp.Equal(file.Hunks[0].Lines, wantLines) {
		t.Errorf("file = %+v", file)
	}
}
