package gitcommit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/sandbox/gitrun/gittest"
)

func open(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestARepositoryThatLeadsOut(t *testing.T) {
	testenv.Command(t, "git")
	for _, c := range []struct{ name, script, want string }{
		{"an ordinary repository", "git tag x; git gc -q; git branch one/two; git worktree list", ""},
		{"a deep one", "mkdir -p .git/refs/heads/$(seq -s / 90)", ""},
		{"one that is deeper", "mkdir -p .git/refs/heads/$(seq -s / 120)", "more than 100 directories"},
		{"no repository", "rm -r .git", "no directory .git"},
		{"a link in place of .git", "mv .git git; ln -s git .git", "no directory .git"},
		{"a file in place of .git", "mv .git git; echo gitdir: git >.git", "no directory .git"},
		{"a link", "ln -s /etc .git/objects/aa", ".git/objects/aa: a symbolic link"},
		{"a broken link", "ln -s /nowhere .git/refs/heads/x", ".git/refs/heads/x: a symbolic link"},
		{"a FIFO", "mkfifo .git/objects/x", ".git/objects/x: a symbolic link or special file"},
		{"a FIFO as configuration", "rm .git/config; mkfifo .git/config", ".git/config: a symbolic link or special file"},
		{"a directory as configuration", "rm .git/config; mkdir .git/config", ".git/config: is a directory"},
		{"alternates", "touch .git/objects/info/alternates", "objects/info/alternates: the repository uses another one"},
		{"alternates over HTTP", "touch .git/objects/info/http-alternates", "the repository uses another one"},
		{"a common directory", "echo /x >.git/commondir", ".git/commondir: the repository uses another one"},
		{"linked work trees", "git worktree add -q ../$(basename $PWD)-linked", ""},
		{"an include", "git config include.path /x", ".git/config: it includes other files"},
		{"an include with a condition", "git config includeIf.gitdir:/.path /x", ".git/config: it includes other files"},
		{"an include for the work tree", "printf '[ InCLUDE]\\npath=/x' >.git/config.worktree", ".git/config.worktree: it includes"},
		{"refs elsewhere", "git config extensions.refStorage files:///x", "it includes other files, or sets extensions.refStorage"},
		{"a huge configuration", "truncate -s 2M .git/config", ".git/config: longer than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := gittest.Repository(t, c.script)
			t.Cleanup(func() { os.RemoveAll(dir + "-linked") })
			err := CheckContained(open(t, dir))
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errdefs.Is(err, errdefs.Precondition) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// What is checked is what the handle leads to, also if another directory has the name meanwhile.
func TestTheCheckFollowsTheHandle(t *testing.T) {
	testenv.Command(t, "git")
	dir := gittest.Repository(t, "git config include.path /x")
	f := open(t, dir)
	if err := os.Rename(dir, dir+"-old"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir + "-old") })
	if err := os.Symlink(gittest.Repository(t, ""), dir); err != nil {
		t.Fatal(err)
	}
	if err := CheckContained(f); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("%v, want a refusal of the first directory", err)
	}
}

// An entry that is another one when it is opened than when it was listed is refused.
func TestAnEntryThatIsReplaced(t *testing.T) {
	dir := t.TempDir()
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "config"} {
		if err := os.WriteFile(filepath.Join(outside, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(filepath.Join(outside, "file"), filepath.Join(dir, "file")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, "config"), filepath.Join(dir, "config")); err != nil {
		t.Fatal(err)
	}
	at := int(open(t, dir).Fd())
	for _, name := range []string{"link", "file", "config"} {
		mode := uint32(unix.S_IFDIR)
		if name == "config" {
			mode = unix.S_IFREG
		}
		if err := checkEntry(at, name, name, mode, 0); !errdefs.Is(err, errdefs.Precondition) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := checkEntry(at, "gone", "gone", unix.S_IFDIR, 0); err != nil {
		t.Errorf("a directory that is gone: %v", err)
	}
}
