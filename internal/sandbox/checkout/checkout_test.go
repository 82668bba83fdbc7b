package checkout

import (
	"os"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/gitcommit"
	"github.com/agentfense/agentfense/internal/sandbox/gitrun/gittest"
	"github.com/agentfense/agentfense/internal/sandbox/history"
)

// prepare plans to move the branch main of a repository to its branch next.
func prepare(t *testing.T, dir string) (blocked string, err error) {
	t.Helper()
	repo, err := gitcommit.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer repo.Close()
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	move := history.BranchMove{
		Ref: "refs/heads/main", From: gittest.Git(t, dir, nil, "rev-parse", "main"), To: gittest.Git(t, dir, nil, "rev-parse", "next"),
	}
	p, err := Prepare(t.Context(), repo, &changes.SourceTree{Root: root, Owner: "sb_test"}, move)
	if err != nil {
		return "", err
	}
	defer p.Close()
	var list []string
	for _, b := range p.Blocked {
		list = append(list, b.Path+": "+b.Why)
	}
	return strings.Join(list, "\n"), nil
}

// Only paths that the commits change are looked at, and each must be as in the commit that is left.
func TestWhatStopsACheckout(t *testing.T) {
	testenv.Command(t, "git")
	t.Setenv("GIT_CONFIG_GLOBAL", "/dev/null")
	const (
		next = "git checkout -q -b next; echo 2 >>a; echo n >new; git add .; git commit -qm 2; git checkout -q main\n"
		lfs  = "echo 'big filter=lfs' >.gitattributes; git add .; git commit -qm lfs; git checkout -q -b next; git update-index --add --cacheinfo 100644,$(git rev-parse HEAD:a),big; git commit -qm big; git checkout -qf main\n"
		sub  = "git checkout -q -b next; git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub; git commit -qm sub; git checkout -qf main\n"
	)
	for _, c := range []struct{ name, script, blocked, refused string }{
		{"nothing", next, "", ""},
		{"a change elsewhere", next + "echo mine >h; echo x >untracked; git add h", "", ""},
		{"a change of the same file", next + "echo mine >>a", "a: ", ""},
		{"a staged change of the same file", next + "echo mine >>a; git add a; git show HEAD:a >a", "a: ", ""},
		{"an untracked file in the way", next + "echo mine >new", "new: ", ""},
		{"an ignored file in the way", next + "echo new >>.git/info/exclude; echo mine >new", "new: ", ""},
		{"a deleted file", next + "rm a", "a: ", ""},
		{"a link in place of the file", next + "rm a; ln -s h a", "a: ", ""},
		{"a pointer of LFS", lfs, "big: git's attribute filter=lfs converts it", ""},
		{"a submodule", sub, "sub: a submodule", ""},
		{"a detached HEAD", next + "git checkout -q --detach", "", "is not checked out"},
		{"another branch", next + "git checkout -q -b third", "", "is not checked out"},
		{"a merge that waits", next + "git rev-parse next >.git/MERGE_HEAD", "", "git merge is in progress"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := gittest.Repository(t, c.script)
			before := gittest.Git(t, dir, nil, "status", "--porcelain", "--ignored")
			blocked, err := prepare(t, dir)
			switch {
			case c.refused != "":
				if !errdefs.Is(err, errdefs.Precondition) || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("%v, want %q", err, c.refused)
				}
			case err != nil:
				t.Error(err)
			case c.blocked == "" && blocked != "", !strings.HasPrefix(blocked, c.blocked), strings.Contains(blocked, "\n"):
				t.Errorf("blocked: %q, want %q", blocked, c.blocked)
			}
			if after := gittest.Git(t, dir, nil, "status", "--porcelain", "--ignored"); after != before {
				t.Errorf("a plan changed the work tree: %q, before %q", after, before)
			}
		})
	}
}
