package cleangit

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/sandbox/gitrun/gittest"
	"github.com/agentfense/agentfense/internal/view/policy"
)

var (
	historyCommits = flag.Int("cleangit.commits", 300, "commits of the long history")
	histories      = flag.Int("cleangit.histories", 8, "random histories")
)

// rulesHiding let everything be read but what the patterns match.
func rulesHiding(t *testing.T, patterns ...string) *policy.Policy {
	t.Helper()
	rules := []policy.Rule{{Pattern: "**", Permission: policy.Write}}
	for _, p := range patterns {
		rules = append(rules, policy.Rule{Pattern: p, Permission: policy.None, Priority: 1})
	}
	p, err := policy.Compile(rules, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// makeClean makes the clean repository of dir, and returns its directory and what it is.
func makeClean(t *testing.T, dir string, mode Mode, p *policy.Policy) (string, *Made, error) {
	t.Helper()
	workspace, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer workspace.Close()
	made, err := CacheIn(t.TempDir()).Make(t.Context(), workspace, mode, p)
	if err != nil {
		return "", nil, err
	}
	box := t.TempDir()
	if err := made.Fill(box); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(box, "git", repositoryDir), made, nil
}

// pairs reads the file of commits.
func pairs(t *testing.T, repository string) []pair {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(filepath.Dir(repository), commitsFile))
	if err != nil {
		t.Fatal(err)
	}
	var all []pair
	for line := range strings.Lines(string(text)) {
		clean, real, _ := strings.Cut(strings.TrimSpace(line), " ")
		all = append(all, pair{clean, real})
	}
	return all
}

// treeOf lists what a commit has, without what p hides.
func treeOf(t *testing.T, dir, commit string, p *policy.Policy) string {
	t.Helper()
	shown := shows(p.ShowsContent)
	var list []string
	for entry := range strings.SplitSeq(gittest.Git(t, dir, nil, "ls-tree", "-r", "-z", commit), "\x00") {
		if _, name, ok := strings.Cut(entry, "\t"); ok && shown(name) {
			list = append(list, entry)
		}
	}
	return strings.Join(list, "\n")
}

// Whatever the history is, each commit has the tree of the one that it was made of, without what is
// hidden. The head stands for the source's head, and no object is left over or missing.
func TestEachCommitHasTheVisibleTree(t *testing.T) {
	testenv.Command(t, "git")
	p := rulesHiding(t, "h", `hid*/`, "/sub/z")
	for seed := range uint64(*histories) {
		r := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		gittest.Git(t, dir, nil, "init", "-q")
		gittest.Git(t, dir, gittest.RandomHistory(r, 25), "fast-import", "--quiet", "--date-format=raw")
		gittest.Git(t, dir, nil, "symbolic-ref", "HEAD", "refs/heads/c25")
		mode := []Mode{"clean:all", "clean:1", "clean:7", "clean:20"}[seed%4]
		repository, made, err := makeClean(t, dir, mode, p)
		if errdefs.Is(err, errdefs.Precondition) && treeOf(t, dir, "HEAD", p) == "" {
			continue // nothing at all is shown
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		gittest.Git(t, repository, nil, "--git-dir=.", "fsck", "--strict", "--full")
		kept := pairs(t, repository)
		if last := kept[len(kept)-1]; made.Info.Head != gittest.Git(t, repository, nil, "rev-parse", "HEAD") || len(kept) != made.Info.Commits {
			t.Errorf("seed %d: %+v, with the last commit %v", seed, made.Info, last)
		}
		checkTrees(t, dir, repository, p)
		if t.Failed() {
			t.Fatalf("seed %d, %s", seed, mode)
		}
		for _, c := range kept {
			if c.clean == made.Info.Head && c.real != made.Info.Source {
				t.Errorf("seed %d: the head is made of %s, want %s", seed, c.real, made.Info.Source)
			}
		}
		reached := len(strings.Fields(gittest.Git(t, repository, nil, "rev-list", "HEAD")))
		if reached > len(kept) {
			t.Errorf("seed %d: the head reaches %d commits of %d", seed, reached, len(kept))
		}
	}
}

// checkTrees compares the tree of each commit with the one that it was made of.
func checkTrees(t *testing.T, dir, repository string, p *policy.Policy) {
	t.Helper()
	for _, c := range pairs(t, repository) {
		if diff := cmp.Diff(treeOf(t, dir, c.real, p), treeOf(t, repository, c.clean, rulesHiding(t))); diff != "" {
			t.Errorf("commit %v: (-want +got)\n%s", c, diff)
		}
	}
}

// A merge whose first parent is not in the clean history has its own tree nevertheless.
func TestAMergeWithoutItsFirstParent(t *testing.T) {
	testenv.Command(t, "git")
	const other = "git checkout -q -b other; echo x >x; git add x; git commit -qm x\n"
	p := rulesHiding(t, "h")
	for name, c := range map[string]struct {
		script string
		mode   Mode
	}{
		"beyond the depth": {other + "git reset -q --hard $(git commit-tree -p main -p other -m m main^{tree})", "clean:2"},
		"of hidden files alone": {other + `
H=$(git commit-tree -m hidden $(git ls-tree HEAD h | git mktree))
git reset -q --hard $(git commit-tree -p $H -p other -m m $H^{tree}); echo b >b; git add b; git commit -qm b`, "clean:all"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := gittest.Repository(t, c.script)
			repository, _, err := makeClean(t, dir, c.mode, p)
			if err != nil {
				t.Fatal(err)
			}
			checkTrees(t, dir, repository, p)
			if got := gittest.Git(t, repository, nil, "log", "--format=%s"); !strings.Contains(got, "m") {
				t.Errorf("the merge is gone: %s", got)
			}
		})
	}
}

// A history of 10,000 commits takes bounded time; CI makes a shorter one.
func TestALongHistory(t *testing.T) {
	testenv.Command(t, "git")
	dir := t.TempDir()
	gittest.Git(t, dir, nil, "init", "-q")
	gittest.Git(t, dir, gittest.RandomHistory(rand.New(rand.NewPCG(1, 2)), *historyCommits), "fast-import", "--quiet", "--date-format=raw")
	gittest.Git(t, dir, nil, "symbolic-ref", "HEAD", fmt.Sprintf("refs/heads/c%d", *historyCommits))
	repository, made, err := makeClean(t, dir, "clean:all", rulesHiding(t, "h"))
	if err != nil {
		t.Fatal(err)
	}
	gittest.Git(t, repository, nil, "fsck", "--strict", "--full")
	if made.Info.Commits < *historyCommits/4 {
		t.Errorf("%d commits of %d", made.Info.Commits, *historyCommits)
	}
}

// Sources of which there can be no clean repository are refused with the reason.
func TestRefusedSources(t *testing.T) {
	testenv.Command(t, "git")
	p := rulesHiding(t, "h")
	for name, c := range map[string]struct{ prepare, want string }{
		"no repository":             {"rm -rf .git", "no .git directory"},
		"a linked work tree":        {"mkdir x; mv .git x; git -C x worktree add -q ../w; mv w/.git .", "linked work tree"},
		"no commit":                 {"rm -rf .git; git init -q", "no commit yet"},
		"everything is hidden":      {"rm -rf .git; git init -q; echo h >h; git add h; git commit -qm h", "hides every file"},
		"objects are missing":       {"rm -rf .git/objects/??", "git "},
		"HEAD is no branch":         {"git update-ref refs/x/y HEAD; echo ref: refs/x/y >.git/HEAD", "HEAD is no branch"},
		"a link for the repository": {"mv .git g; ln -s g .git", "no directory"},
		"refs in a reftable":        {"mkdir .git/reftable", "reftable"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := gittest.Repository(t, c.prepare)
			_, _, err := makeClean(t, dir, "clean:50", p)
			if !errdefs.Is(err, errdefs.Precondition) && !errdefs.Is(err, errdefs.Unsupported) || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("got %v, want the reason %q", err, c.want)
			}
		})
	}
}

// Repositories in unusual forms have clean ones that git checks, with what is written here.
func TestUnusualSources(t *testing.T) {
	testenv.Command(t, "git")
	for name, c := range map[string]struct{ prepare, log, tree string }{
		"sha256":          {"rm -rf .git; git init -q --object-format=sha256; git add .; git commit -qm first", "first", "a"},
		"a detached HEAD": {"git checkout -q --detach", "first", "a"},
		"shallow": {
			"echo b >>a; git commit -qam second; echo b >>a; git commit -qam third; git clone -q --bare --depth 2 file://$PWD x; rm -rf .git; mv x .git; git config core.bare false",
			"third\nsecond", "a",
		},
		"alternates":                            {"git clone -q --bare --shared . x; mv .git y; sed -i s,/.git/,/y/, x/objects/info/alternates; mv x .git; git config core.bare false", "first", "a"},
		"no hidden blob, as in a partial clone": {"B=$(git rev-parse HEAD:h); rm -f .git/objects/$(echo $B | sed 's,^..,&/,'); git config extensions.partialClone evil; git config remote.evil.url 'ext::sh -c false'", "first", "a"},
		"replaced and grafted":                  {"echo b >>a; git commit -qam second; git replace HEAD HEAD^; git rev-parse HEAD >.git/info/grafts", "second\nfirst", "a"},
		"a signed commit":                       {"git cat-file commit HEAD | sed '/^committer/a gpgsig -----BEGIN PGP SIGNATURE-----\\n \\n SIGNATURE\\n -----END PGP SIGNATURE-----' >c; git update-ref HEAD $(git hash-object -t commit -w c); rm c", "first", "a"},
		"an LFS pointer":                        {"echo '*.bin filter=lfs' >.gitattributes; echo version https://git-lfs >x.bin; git add .; git commit -qm lfs", "lfs\nfirst", ".gitattributes\na\nx.bin"},
		"a submodule":                           {"git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub; git commit -qm sub", "sub\nfirst", "a\nsub"},
		"a link and a mode":                     {"ln -s h l; chmod +x a; git add l a; git commit -qm l", "l\nfirst", "a\nl"},
		"hidden changes alone":                  {"echo 2 >h; git commit -qam rotate; git commit -qm empty --allow-empty", "empty\nfirst", "a"},
		"another encoding":                      {"echo b >>a; git -c i18n.commitEncoding=latin1 commit -qam second", "second\nfirst", "a"},
		"a message without end":                 {"C=$(printf x | git commit-tree -p HEAD HEAD^{tree}); git reset -q $C", "x\nfirst", "a"},
		"a directory and a file":                {"git rm -q a; mkdir a; echo z >a/z; git add a; git commit -qm dir; git rm -qr a; echo a >a; git add a; git commit -qm file", "file\ndir\nfirst", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := gittest.Repository(t, c.prepare)
			repository, _, err := makeClean(t, dir, "clean:50", rulesHiding(t, "h"))
			if err != nil {
				t.Fatal(err)
			}
			gittest.Git(t, repository, nil, "fsck", "--strict", "--full")
			if got := gittest.Git(t, repository, nil, "log", "--format=%s"); got != c.log {
				t.Errorf("the log has %q, want %q", got, c.log)
			}
			if got := gittest.Git(t, repository, nil, "ls-tree", "-r", "--name-only", "--full-tree", "HEAD"); got != c.tree {
				t.Errorf("the head has %q, want %q", got, c.tree)
			}
			if raw := gittest.Git(t, repository, nil, "cat-file", "commit", "HEAD"); strings.Contains(raw, "SIGNATURE") {
				t.Errorf("the signature is kept:\n%s", raw)
			}
		})
	}
}

// The ids in messages are those of the clean repository, and others become zeros.
func TestIDsInMessages(t *testing.T) {
	testenv.Command(t, "git")
	dir := gittest.Repository(t, `
R=$(git rev-parse HEAD); B=$(git rev-parse HEAD:h); O=$(git rev-parse --short=9 HEAD:h)
echo b >>a; git commit -qam "of $R, $(git rev-parse --short=8 HEAD), v1-2-g$(git rev-parse --short=7 HEAD), $B, $O, 1234567, deadbeefdeadbeefdeadbeefdeadbeefdeadbeef"`)
	repository, _, err := makeClean(t, dir, "clean:50", rulesHiding(t, "h"))
	if err != nil {
		t.Fatal(err)
	}
	id := gittest.Git(t, repository, nil, "rev-parse", "HEAD^")
	zeros := strings.Repeat("0", 40)
	want := "of " + id + ", " + id[:8] + ", v1-2-g" + id[:7] + ", " + zeros + ", " + zeros[:9] + ", 1234567, " + zeros
	if got := gittest.Git(t, repository, nil, "log", "-1", "--format=%s"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestParseMode(t *testing.T) {
	for text, want := range map[string]Mode{"": "", "source": "", "clean": "clean:50", "clean:1": "clean:1", "clean:all": "clean:all", "clean:1000000": "clean:1000000"} {
		if got, err := ParseMode(text); got != want || err != nil {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"clean:", "clean:0", "clean:-1", "clean:01", "clean:1000001", "cleans", "all", "clean:all:1", "source:1"} {
		if got, err := ParseMode(text); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func TestRefNames(t *testing.T) {
	for name, want := range map[string]bool{
		"refs/heads/a": true, "refs/heads/a/b-c.d": true, "refs/heads/ä": true, "refs/heads/": false, "refs/heads/../x": false, "refs/heads/a..b": false,
		"refs/heads/.a": false, "refs/heads/a.lock": false, "refs/heads/a b": false, "refs/heads/a\x1b": false, "refs/heads/a@{1}": false, "heads/a": false, "refs//a": false, "refs/heads/a.": false,
	} {
		if got := isRefName(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}
