package gitcommit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/sandbox/gitrun/gittest"
)

// as makes git know who the caller is, and nothing else of it.
func as(t *testing.T) {
	t.Helper()
	for _, who := range []string{"GIT_AUTHOR_", "GIT_COMMITTER_"} {
		t.Setenv(who+"NAME", "You")
		t.Setenv(who+"EMAIL", "you@example.org")
	}
	t.Setenv("GIT_CONFIG_GLOBAL", "/dev/null")
}

func openRepository(t *testing.T, dir string) *Repository {
	t.Helper()
	r, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// commitFile commits the file name on a new branch.
func commitFile(t *testing.T, dir, name, text, branch string) string {
	t.Helper()
	r := openRepository(t, dir)
	put, _, err := r.Put(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	ids, err := r.Hash(t.Context(), []string{put})
	if err != nil {
		t.Fatal(err)
	}
	id, err := r.Commit(t.Context(), map[string]Entry{name: {Regular, ids[0]}}, branch, "new", false)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// A commit is HEAD with the changes, on a new branch, wherever HEAD and the repository are. Other
// entries stay as they are, also those that git would not write into a work tree.
func TestACommitKeepsTheOtherEntries(t *testing.T) {
	testenv.Command(t, "git")
	as(t)
	for _, c := range []struct{ name, script, want string }{
		{"a branch", "", "a h new"},
		{"a detached HEAD", "echo 2 >b; git add b; git commit -qm 2; git checkout -q --detach HEAD^", "a h new"},
		{"a submodule", "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub; git commit -qm sub", "a h new sub"},
		{"a pointer of LFS", "printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:%064d\\nsize 1\\n' 0 >big; echo 'big filter=lfs' >.gitattributes; git add .; git commit -qm lfs", ".gitattributes a big h new"},
		{"a signed commit", `git cat-file commit HEAD | sed '/^committer/a gpgsig -----BEGIN SSH SIGNATURE-----\n x\n -----END SSH SIGNATURE-----' >c; git reset -q --soft $(git hash-object -t commit -w c)`, "a h new"},
		{"a commit in another encoding", `git -c i18n.commitEncoding=ISO-8859-1 commit -q --allow-empty -m "$(printf 'b\344r')"`, "a h new"},
		{"no commit yet", "rm -r .git; git init -q", "new"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := gittest.Repository(t, c.script)
			before := gittest.Git(t, dir, nil, "status", "--porcelain", "--ignore-submodules")
			id := commitFile(t, dir, "new", "new\n", "made")
			if got := strings.Fields(gittest.Git(t, dir, nil, "ls-tree", "-r", "--name-only", "made")); strings.Join(got, " ") != c.want {
				t.Errorf("it has %q, want %q", got, c.want)
			}
			if got := gittest.Git(t, dir, nil, "rev-parse", "made"); got != id {
				t.Errorf("the branch is at %s, want %s", got, id)
			}
			if after := gittest.Git(t, dir, nil, "status", "--porcelain", "--ignore-submodules"); after != before {
				t.Errorf("the work tree and the index changed: %q, before %q", after, before)
			}
			if c.want == "new" {
				return
			}
			if diff := gittest.Git(t, dir, nil, "diff", "--name-status", "HEAD", "made"); diff != "A\tnew" {
				t.Errorf("it changes %q", diff)
			}
		})
	}
}

// In a linked work tree, HEAD is that of the work tree, and the branch is in the common repository.
func TestALinkedWorkTreeHasItsOwnHead(t *testing.T) {
	testenv.Command(t, "git")
	as(t)
	linked := filepath.Join(t.TempDir(), "linked")
	dir := gittest.Repository(t, "git worktree add -q -b other "+linked+"; echo 2 >b; git add b; git commit -qm 2")
	commitFile(t, linked, "new", "new\n", "made")
	if got := gittest.Git(t, dir, nil, "diff", "--name-status", "other", "made"); got != "A\tnew" {
		t.Errorf("the commit has %q", got)
	}
}

// Root makes a commit as the owner of the repository, to whom all new files belong.
func TestRootCommitsAsTheOwner(t *testing.T) {
	testenv.Command(t, "git")
	testenv.Root(t) // it makes files of another user
	as(t)
	dir := gittest.Repository(t, "chown -R 65534:65534 .")
	for up := dir; up != os.TempDir() && up != "/"; up = filepath.Dir(up) {
		if err := os.Chmod(up, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	id := commitFile(t, dir, "new", "new\n", "made")
	if out := gittest.Git(t, dir, nil, "-c", "safe.directory=*", "rev-parse", "made"); out != id {
		t.Errorf("the branch is at %s", out)
	}
	gittest.Script(t, dir, "! find .git ! -user 65534 | grep .")
	if err := os.Chown(filepath.Join(dir, ".git"), 4242, 4242); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), dir); !errdefs.Is(err, errdefs.Precondition) || !strings.Contains(err.Error(), "belongs to uid 4242") {
		t.Errorf("a repository of neither root nor the owner of the source: %v", err)
	}
}
