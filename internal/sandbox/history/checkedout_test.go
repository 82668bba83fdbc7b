package history

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/gitrun/gittest"
)

func readCheckedOut(t *testing.T, dir string) (CheckedOut, error) {
	t.Helper()
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return ReadCheckedOut(&changes.SourceTree{Root: root, Owner: "sb_test"})
}

// What is checked out is read without git, and a command of git that waits is found.
func TestWhatIsCheckedOut(t *testing.T) {
	testenv.Command(t, "git")
	const main = "refs/heads/main"
	for _, c := range []struct{ name, script, ref, busy string }{
		{"a branch", "", main, ""},
		{"a packed branch", "git pack-refs --all", main, ""},
		{"a detached HEAD", "git checkout -q --detach", "", ""},
		{"a merge", "git checkout -q -b x; echo x >a; git commit -qam x; git checkout -q main; echo y >a; git commit -qam y; git merge -q x || true", main, "merge"},
		{"a cherry-pick", "git checkout -q -b x; echo x >a; git commit -qam x; git checkout -q main; echo y >a; git commit -qam y; git cherry-pick x 2>/dev/null || true", main, "cherry-pick"},
		{"a rebase", "git checkout -q -b x; echo x >a; git commit -qam x; git checkout -q main; echo y >a; git commit -qam y; git rebase -q x 2>/dev/null || true", "", "rebase"},
		{"a bisect", "echo 2 >a; git commit -qam 2; git bisect start >/dev/null", main, "bisect"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := gittest.Repository(t, c.script)
			got, err := readCheckedOut(t, dir)
			want := CheckedOut{Ref: c.ref, Commit: gittest.Git(t, dir, nil, "rev-parse", "HEAD"), Busy: c.busy}
			if err != nil || got != want {
				t.Errorf("%+v, %v, want %+v", got, err, want)
			}
			if why := got.Refuses(main, want.Commit); (why == "") != (c.ref == main && c.busy == "") {
				t.Errorf("refused because %q", why)
			}
		})
	}
}

// A linked work tree has its repository elsewhere, and so has one whose .git is a link.
func TestARepositoryElsewhereIsNotCheckedOut(t *testing.T) {
	testenv.Command(t, "git")
	linked := filepath.Join(t.TempDir(), "linked")
	gittest.Repository(t, "git worktree add -q -b other "+linked)
	dir := gittest.Repository(t, "mv .git ../$(basename $PWD).git; ln -s ../$(basename $PWD).git .git")
	t.Cleanup(func() { os.RemoveAll(dir + ".git") })
	for _, source := range []string{linked, dir} {
		if _, err := readCheckedOut(t, source); !errdefs.Is(err, errdefs.Precondition) || !strings.Contains(err.Error(), ".git") {
			t.Errorf("%s: %v", source, err)
		}
	}
}
