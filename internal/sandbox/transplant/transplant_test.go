package transplant

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/cleangit"
	"github.com/agentfense/agentfense/internal/sandbox/gitindex"
	"github.com/agentfense/agentfense/internal/sandbox/gitrun/gittest"
	"github.com/agentfense/agentfense/internal/view/policy"
)

var histories = flag.Int("transplant.histories", 8, "random histories")

// box is a sandbox with the clean repository of a source. Commands have written all of it anew, so
// that upper is a repository by itself.
type box struct {
	t      *testing.T
	source string
	store  cleangit.Store
	upper  string
	policy *policy.Policy
	info   *cleangit.Info
}

// newBox makes a sandbox that sees all but what the patterns match.
func newBox(t *testing.T, source string, mode cleangit.Mode, hidden ...string) *box {
	t.Helper()
	rules := []policy.Rule{{Pattern: "**", Permission: policy.Write}}
	for _, p := range hidden {
		rules = append(rules, policy.Rule{Pattern: p, Permission: policy.None, Priority: 1})
	}
	p, err := policy.Compile(rules, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	workspace, err := os.Open(source)
	if err != nil {
		t.Fatal(err)
	}
	defer workspace.Close()
	made, err := cleangit.CacheIn(t.TempDir()).Make(t.Context(), workspace, mode, p)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := made.Fill(dir); err != nil {
		t.Fatal(err)
	}
	b := &box{t: t, source: source, store: cleangit.StoreIn(dir), policy: p, info: &made.Info}
	b.upper = filepath.Join(string(b.store), "upper")
	gittest.Script(t, string(b.store), "cp -r repository upper")
	return b
}

// history returns the commits that the sandbox was made with, and those that they were made of.
func (b *box) history() map[string]string {
	b.t.Helper()
	reals, err := b.store.History()
	if err != nil {
		b.t.Fatal(err)
	}
	return reals
}

// shown reports whether the sandbox sees a path.
func (b *box) shown(name string) bool {
	p, ok := gitindex.TrackedPath(vpath.Root, name)
	return ok && b.policy.ShowsContent(p)
}

// files lists the files of a commit that the sandbox sees, or those that it does not see.
func (b *box) files(dir, commit string, shown bool) string {
	b.t.Helper()
	var list []string
	for entry := range strings.SplitSeq(gittest.Git(b.t, dir, nil, "ls-tree", "-r", "-z", commit), "\x00") {
		if _, name, ok := strings.Cut(entry, "\t"); ok && b.shown(name) == shown {
			list = append(list, entry)
		}
	}
	return strings.Join(list, "\n")
}

// agent makes git commit as the agent.
const agent = "export GIT_AUTHOR_NAME=Agent GIT_AUTHOR_EMAIL=agent@example.org GIT_AUTHOR_DATE='1234567890 +0200'\n"

// run runs a script in a work tree of the sandbox.
func (b *box) run(script string) {
	b.t.Helper()
	gittest.Script(b.t, b.t.TempDir(), agent+"export GIT_DIR="+b.upper+" GIT_WORK_TREE=$PWD; git reset -q --hard\n"+script)
}

func (b *box) take() (*Taken, error) {
	b.t.Helper()
	workspace, err := os.Open(b.source)
	if err != nil {
		b.t.Fatal(err)
	}
	defer workspace.Close()
	return TakeOut(b.t.Context(), b.store, workspace)
}

const committer = "You <you@example.org> 1700000000 +0000"

// judge drops what is hidden, and refuses the file "read-only".
func (b *box) judge(name string) (Verdict, string) {
	switch {
	case name == "read-only":
		return Refuse, "it is read-only"
	case !b.shown(name):
		return Drop, "hidden"
	}
	return Take, ""
}

// transplant brings the commits of a branch to the branch "out" of the source.
func (b *box) transplant(p Plan) (*Transplanted, error) {
	b.t.Helper()
	taken, err := b.take()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := taken.Close(); err != nil {
			b.t.Error(err)
		}
	}()
	if p.Ref == "" {
		p.Ref = taken.Heads.Current
	}
	p.Committer, p.Judge = committer, b.judge
	r, err := taken.Transplant(b.t.Context(), p)
	if err != nil || len(r.Refused) > 0 {
		return r, err
	}
	err = taken.Pack(b.t.Context(), r, func(pack io.Reader) error {
		text, err := io.ReadAll(pack)
		if err != nil {
			return err
		}
		gittest.Git(b.t, b.source, text, "index-pack", "--stdin", "--strict")
		gittest.Git(b.t, b.source, nil, "update-ref", "refs/heads/out", r.Tip)
		return nil
	})
	return r, err
}

// hiddenOf lists what a commit of the source has and the sandbox does not see.
func (b *box) hiddenOf(commit string) string { return b.files(b.source, commit, false) }

// randomCommits continues a history in the sandbox: commits on the head, on older ones and on each
// other, which also add hidden files.
func randomCommits(r *rand.Rand, old []string, head string, commits int) []byte {
	var b bytes.Buffer
	parent := func(i int) string {
		switch n := r.IntN(10); {
		case n == 0:
			return old[r.IntN(len(old))]
		case n < 3 || i == 1:
			return head
		}
		return fmt.Sprintf(":%d", 1+r.IntN(i-1))
	}
	for i := 1; i <= commits; i++ {
		fmt.Fprintf(&b, "commit refs/heads/agent%d\nmark :%d\nauthor Agent %d <agent@b> %d +0200\ncommitter a <a@b> 1 +0000\n", i, i, i, 2_000_000+i)
		fmt.Fprintf(&b, "data 8\nagent%3d\n", i)
		first := parent(i)
		fmt.Fprintf(&b, "from %s\n", first)
		if other := parent(i); other != first && r.IntN(3) == 0 {
			fmt.Fprintf(&b, "merge %s\n", other)
		}
		gittest.RandomChanges(&b, r)
	}
	return b.Bytes()
}

// Whatever the sandbox commits, the result has the hidden files of the source as they were, and
// otherwise the tree of the sandbox. No commit has hidden files of the sandbox.
func TestATransplantKeepsWhatIsHidden(t *testing.T) {
	testenv.Command(t, "git")
	moved, refused := 0, 0
	for seed := range uint64(*histories) {
		r := rand.New(rand.NewPCG(seed, 3))
		dir := t.TempDir()
		gittest.Git(t, dir, nil, "init", "-q")
		gittest.Git(t, dir, gittest.RandomHistory(r, 15), "fast-import", "--quiet", "--date-format=raw")
		gittest.Git(t, dir, nil, "symbolic-ref", "HEAD", "refs/heads/c15")
		b := newBox(t, dir, "clean:all", "h", `hid*/`, "/sub/z")
		old := slices.Sorted(maps.Keys(b.history()))
		gittest.Git(t, b.upper, randomCommits(r, old, b.info.Head, 12), "--git-dir=.", "fast-import", "--quiet", "--date-format=raw")
		for i := 1; i <= 12; i += 3 {
			ref := fmt.Sprintf("refs/heads/agent%d", i)
			result, err := b.transplant(Plan{Ref: ref})
			switch {
			case errdefs.Is(err, errdefs.Precondition) && strings.Contains(err.Error(), "nothing but hidden"):
				continue
			case err != nil:
				t.Fatalf("seed %d, %s: %v", seed, ref, err)
			case len(result.Refused) > 0:
				b.checkRefused(result)
				refused++
				continue
			}
			moved++
			b.check(ref, result)
			if t.Failed() {
				t.Fatalf("seed %d, %s", seed, ref)
			}
		}
	}
	if moved < *histories {
		t.Errorf("only %d transplants, %d refused", moved, refused)
	}
}

// checkRefused checks that nothing stops a transplant but hidden files in the way, and merges that
// set back what the source has.
func (b *box) checkRefused(r *Transplanted) {
	for _, x := range r.Refused {
		if !strings.Contains(x.Why, "directory there") && !strings.Contains(x.Why, "file at") && !strings.Contains(x.Why, "older version") {
			b.t.Errorf("refused: %+v", x)
		}
	}
}

// check compares each new commit with the one of the sandbox.
func (b *box) check(ref string, r *Transplanted) {
	b.t.Helper()
	root := b.history() // of a commit of the sandbox: that of the source with its hidden files
	for _, m := range r.Moved {
		root[m.ID] = root[m.Parents[0]]
		if m.Real == "" {
			continue
		}
		if diff := cmp.Diff(b.files(b.upper, m.ID, true), b.files(b.source, m.Real, true)); diff != "" {
			b.t.Errorf("%s: commit %s, made of %s: visible files (-want +got)\n%s", ref, m.Real, m.ID, diff)
		}
		if diff := cmp.Diff(b.hiddenOf(root[m.ID]), b.hiddenOf(m.Real)); diff != "" {
			b.t.Errorf("%s: commit %s, made of %s: hidden files (-want +got)\n%s", ref, m.Real, m.ID, diff)
		}
		const format = "--format=%an <%ae> %ad%n%B"
		if diff := cmp.Diff(gittest.Git(b.t, b.upper, nil, "log", "-1", format, m.ID), gittest.Git(b.t, b.source, nil, "log", "-1", format, m.Real)); diff != "" {
			b.t.Errorf("%s: commit %s, made of %s: (-want +got)\n%s", ref, m.Real, m.ID, diff)
		}
	}
	gittest.Git(b.t, b.source, nil, "fsck", "--strict")
}

// A branch of the source that went on gets the commits by three-way merges.
func TestATransplantOntoANewerCommit(t *testing.T) {
	testenv.Command(t, "git")
	const lines = "seq 9 >a; echo s >sub; git add a sub; git commit -qam lines\n"
	for name, c := range map[string]struct{ inside, outside, want, refused string }{
		"other files":                          {"echo b >b; git add b; git commit -qm b", "echo c >c; echo h2 >h; git add c; git commit -qam c", "a b c h sub", ""},
		"other lines of a file":                {"sed -i 1s/.*/x/ a; git commit -qam x", "sed -i 9s/.*/y/ a; git commit -qam y", "a h sub", ""},
		"the same change":                      {"echo x >a; git commit -qam x", "echo x >a; git commit -qam y", "a h sub", ""},
		"the same lines":                       {"echo x >a; git commit -qam x", "echo y >a; git commit -qam y", "", "same lines"},
		"a mode and a content":                 {"chmod +x a; git commit -qam x", "sed -i 1s/.*/x/ a; git commit -qam y", "a h sub", ""},
		"a file that is gone":                  {"echo x >a; git commit -qam x", "git rm -q a; git commit -qm gone", "", "does not have the file"},
		"a deleted file":                       {"git rm -q a; git commit -qm x", "echo y >>a; git commit -qam y", "", "another version than the one that the sandbox deleted"},
		"two new files of a name":              {"echo x >n; git add n; git commit -qm n", "echo y >n; git add n; git commit -qm n", "", "another file there"},
		"a directory in place of a file":       {"git rm -q sub; mkdir sub; echo x >sub/x; git add sub; git commit -qm x", "echo c >c; git add c; git commit -qm c", "a c h sub/x", ""},
		"a file in place of a directory":       {"echo x >n; git add n; git commit -qm n", "mkdir n; echo y >n/y; git add n; git commit -qm n", "", "a directory there"},
		"a file below a file":                  {"mkdir n; echo x >n/x; git add n; git commit -qm n", "echo y >n; git add n; git commit -qm n", "", `a file at "n"`},
		"a link and a file":                    {"rm a; ln -s b a; git commit -qam l", "echo y >>a; git commit -qam y", "", "not all files"},
		"a binary file":                        {`printf 'x\0' >a; git commit -qam x`, `printf 'y\0' >a; git commit -qam y`, "", "no text"},
		"a submodule":                          {"git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),m; git commit -qm m", "true", "", "a submodule"},
		"a read-only file":                     {"echo x >read-only; git add .; git commit -qm r", "true", "", "it is read-only"},
		"an older commit":                      {"git checkout -q HEAD^; echo b >b; git add b; git commit -qm b", "true", "a b h", ""},
		"a merge of an older commit":           {"git checkout -q -b o HEAD^; echo b >b; git add b; git commit -qm b; git checkout -q main; git merge -q -m m o", "echo c >c; git add c; git commit -qm c", "a b c h sub", ""},
		"a merge of the head":                  {"git checkout -q -b o HEAD^; echo b >b; git add b; git commit -qm b; git merge -q -m m main", "true", "a b h sub", ""},
		"an octopus":                           {"for i in 1 2 3; do git checkout -q -b o$i main; echo $i >o$i; git add o$i; git commit -qm o$i; done; git merge -q -m m o1 o2", "true", "a h o1 o2 o3 sub", ""},
		"an amended commit":                    {"echo x >sub; git commit -q --amend --reset-author -am x", "true", "a h sub", ""},
		"an LFS pointer":                       {"echo '*.bin filter=lfs' >.gitattributes; echo version https://git-lfs >x.bin; git add .; git commit -qm lfs", "true", ".gitattributes a h sub x.bin", ""},
		"a name that git quotes":               {`printf x >"$(printf 'q"\\\n\tä')"; git add .; git commit -qm q`, "true", `a h "q\"\\\n\t\303\244" sub`, ""},
		"after git gc":                         {"echo b >b; git add b; git commit -qm b; git gc -q --prune=now; git pack-refs --all", "true", "a b h sub", ""},
		"a branch that is checked out nowhere": {"echo b >b; git add b; git commit -qm b; git worktree add -q ../w$$ HEAD; rm -r ../w$$", "true", "a b h sub", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, gittest.Repository(t, lines), "clean:50", "h")
			b.run(c.inside)
			gittest.Script(t, b.source, c.outside)
			hidden := b.hiddenOf("main")
			r, err := b.transplant(Plan{})
			if err != nil {
				t.Fatal(err)
			}
			if c.refused != "" {
				if len(r.Refused) == 0 || !strings.Contains(fmt.Sprint(r.Refused), c.refused) {
					t.Fatalf("got %+v, want %q", r, c.refused)
				}
				return
			}
			if len(r.Refused) > 0 {
				t.Fatalf("refused: %+v", r.Refused)
			}
			if got := strings.ReplaceAll(gittest.Git(t, b.source, nil, "ls-tree", "-r", "--name-only", "out"), "\n", " "); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if got := b.hiddenOf("out"); got != hidden {
				t.Errorf("the hidden files were %s, are %s", hidden, got)
			}
			gittest.Git(t, b.source, nil, "fsck", "--strict")
			if got := gittest.Git(t, b.source, nil, "log", "-1", "--format=%an %ad %cn", "--date=raw", "out"); got != "Agent 1234567890 +0200 You" {
				t.Errorf("the commit is by %q", got)
			}
		})
	}
}

// Histories that cannot be transplanted are refused with the reason, and so are objects that git
// does not take.
func TestCommitsThatAreNotTaken(t *testing.T) {
	testenv.Command(t, "git")
	const treeWith = `T=$({ printf "100644 $N\\0"; git cat-file tree HEAD | tail -c 20; } | git hash-object -t tree --literally -w --stdin); git reset -q --soft $(echo x | git commit-tree -p HEAD $T)`
	for name, c := range map[string]struct{ script, want string }{
		"an unrelated history":   {"git checkout -q --orphan o; git commit -qm o", "has no parent"},
		"a tree entry .git":      {"N=.git\n" + treeWith, "git index-pack: "},
		"a tree entry .GIT":      {"N=.GIT\n" + treeWith, "git index-pack: "},
		"a tree entry ..":        {"N=..\n" + treeWith, "git index-pack: "},
		"an absolute tree entry": {"N=/etc\n" + treeWith, "git index-pack: "},
		"a link and a directory of one name": {`B=$(git rev-parse HEAD^{tree}); mkdir z; echo z >z/z; git add z; Z=$(git write-tree)
{ printf '120000 l\0'; git cat-file tree $B | tail -c 20; printf '40000 l\0'; git cat-file tree $Z | tail -c 20; } >t
git reset -q --soft $(echo x | git commit-tree -p HEAD $(git hash-object -t tree --literally -w t))`, "git index-pack: "},
		"a missing object":      {`C=$(echo x | git commit-tree -p HEAD $(printf '100644 blob 1234567890123456789012345678901234567890\tx\n' | git mktree --missing)); git update-ref HEAD $C`, "git "},
		"a tip that is a blob":  {"B=$(git rev-parse HEAD:a); echo $B >$GIT_DIR/refs/heads/main", "is no commit"},
		"a tip that is missing": {"echo 1234567890123456789012345678901234567890 >$GIT_DIR/refs/heads/main", "is no commit, or it is missing"},
		"HEAD as a link":        {"rm $GIT_DIR/HEAD; ln -s /etc/passwd $GIT_DIR/HEAD", "HEAD"},
		"refs as a link":        {"echo b >b; git add b; git commit -qm b; mv $GIT_DIR/refs $GIT_DIR/r; ln -s r $GIT_DIR/refs", "refs"},
		"a ref as a link":       {"ln -s /etc/passwd $GIT_DIR/refs/heads/x", "refs"},
		"objects as a link":     {"echo b >b; git add b; git commit -qm b; mv $GIT_DIR/objects $GIT_DIR/o; ln -s o $GIT_DIR/objects", "objects"},
		"a pack as a link":      {"echo b >b; git add b; git commit -qm b; git repack -qd; for p in $GIT_DIR/objects/pack/*.pack; do cp $p $GIT_DIR/p; ln -sf ../../p $p; done", "objects/pack/"},
		"a damaged pack":        {"echo b >b; git add b; git commit -qm b; echo PACK >$GIT_DIR/objects/pack/pack-1234567890123456789012345678901234567890.pack", "git index-pack"},
		"a reftable":            {"echo b >b; git add b; git commit -qm b; mkdir $GIT_DIR/reftable", "reftable"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, gittest.Repository(t, ""), "clean:50", "h")
			b.run(c.script)
			before := gittest.Git(t, b.source, nil, "for-each-ref")
			_, err := b.transplant(Plan{})
			if err == nil || errdefs.Is(err, errdefs.Internal) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if after := gittest.Git(t, b.source, nil, "for-each-ref"); after != before {
				t.Errorf("the refs were %s, are %s", before, after)
			}
		})
	}
}

// Ids of the clean history in messages become the real ones again, also those of transplanted
// commits; control characters do not stay, nor do signatures.
func TestMessagesComeBack(t *testing.T) {
	testenv.Command(t, "git")
	b := newBox(t, gittest.Repository(t, "echo b >>a; git commit -qam second"), "clean:50", "h")
	b.run(`C=$(git rev-parse HEAD^); echo c >c; git add c
printf 'of %s, %s, 1234567, \033[2J\302\233x\n' $C $(git rev-parse --short=9 HEAD) | git commit -q -F -
D=$(git rev-parse HEAD); git commit -q --allow-empty -m "after $D"
git cat-file commit HEAD | sed '/^committer/a gpgsig -----BEGIN PGP SIGNATURE-----\n \n SIGNATURE\n -----END PGP SIGNATURE-----' >s; git update-ref HEAD $(git hash-object -t commit -w s)`)
	r, err := b.transplant(Plan{})
	if err != nil || r.Signed != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	first, second := gittest.Git(t, b.source, nil, "rev-parse", "main^"), gittest.Git(t, b.source, nil, "rev-parse", "--short=9", "main")
	if got, want := gittest.Git(t, b.source, nil, "log", "-1", "--format=%s", "out^"), "of "+first+", "+second+", 1234567, ?[2J?x"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := gittest.Git(t, b.source, nil, "cat-file", "commit", "out"), "after "+gittest.Git(t, b.source, nil, "rev-parse", "out^"); !strings.HasSuffix(got, want) || strings.Contains(got, "SIGNATURE") {
		t.Errorf("got %q, want %q at its end", got, want)
	}
}

// Whatever encoding a commit names, git shows no control character of its message and its author.
func TestNoEncodingBringsControlCharacters(t *testing.T) {
	testenv.Command(t, "git")
	for encoding, c := range map[string]struct{ message, want string }{
		"utf-8":        {`a\302\233b \303\266`, "a?b ö"},
		"latin1":       {`a\233b \366`, "a?b ö"},
		"ISO-8859-1":   {`a\233b \366`, "a?b ö"},
		"UTF-7":        {`a+ABs-[31m`, "a+ABs-[31m"},
		"EBCDIC-US":    {`a'b`, "a'b"},
		"EUC-JP":       {`a\233b`, "a?b"},
		"windows-1252": {`a\220b`, "a?b"},
		"none":         {`a\033b`, "a?b"},
	} {
		t.Run(encoding, func(t *testing.T) {
			b := newBox(t, gittest.Repository(t, ""), "clean:50")
			b.run(fmt.Sprintf(`{ echo "tree $(git rev-parse 'HEAD^{tree}')"; echo "parent $(git rev-parse HEAD)"
printf 'author A\rB <a@example.org> 1 +0000\ncommitter A <a@example.org> 1 +0000\nencoding %s\n\n%%b' '%s'; } >../c; git update-ref HEAD $(git hash-object -t commit -w ../c)`, encoding, strings.ReplaceAll(c.message, "'", `'\''`)))
			if _, err := b.transplant(Plan{}); err != nil {
				t.Fatal(err)
			}
			if got, want := gittest.Git(t, b.source, nil, "log", "-1", "--format=%an %B", "out"), "A?B "+c.want; got != want {
				t.Errorf("git shows %q, want %q", got, want)
			}
		})
	}
}

// Headers that git does not take for parents and the tree of a commit are not taken here, either.
func TestHeadersThatGitDoesNotTake(t *testing.T) {
	testenv.Command(t, "git")
	b := newBox(t, gittest.Repository(t, "echo b >>a; git commit -qam second"), "clean:50")
	b.run(`git checkout -q -b other; echo x >x; git add x; git commit -qm other; git checkout -q main
{ echo "tree $(git rev-parse 'HEAD^{tree}')"; echo "parent $(git rev-parse HEAD)"
printf 'author A <a@example.org> 1 +0000\ncommitter A <a@example.org> 1 +0000\n'; echo "tree $(git rev-parse 'HEAD^^{tree}')"; echo "parent $(git rev-parse other)"; printf '\nm\n'; } >../c
git update-ref HEAD $(git hash-object -t commit -w ../c)`)
	taken, err := b.take()
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	commits, err := taken.Of("refs/heads/main")
	if err != nil || len(commits) != 1 || len(commits[0].Parents) != 1 || len(commits[0].Changes) != 0 {
		t.Errorf("%v, got %+v", err, commits)
	}
}

// Git would wait for a writer of such a list of alternates.
func TestASourceOnWhichGitWouldBlock(t *testing.T) {
	testenv.Command(t, "git")
	b := newBox(t, gittest.Repository(t, ""), "clean:50")
	b.run("echo x >x; git add x; git commit -qm x")
	gittest.Script(t, b.source, "mkfifo .git/objects/info/alternates")
	taken, err := b.take()
	if err != nil || len(taken.Commits) != 1 {
		t.Fatalf("%v, %d commits", err, len(taken.Commits))
	}
	defer taken.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := taken.Transplant(ctx, Plan{Ref: "refs/heads/main", Committer: committer, Judge: b.judge}); !errdefs.Is(err, errdefs.Precondition) || !strings.Contains(err.Error(), "alternates") {
		t.Errorf("got %v", err)
	}
}

// A commit that changes hidden files alone is left out, and they are named.
func TestHiddenFilesOfCommitsAreLeftOut(t *testing.T) {
	testenv.Command(t, "git")
	b := newBox(t, gittest.Repository(t, ""), "clean:50", "h")
	b.run("echo evil >h; git add -f h; git commit -qm h; echo b >b; git add b; git commit -qm b; echo evil2 >h; git commit -qam h2")
	r, err := b.transplant(Plan{})
	if err != nil {
		t.Fatal(err)
	}
	if got := gittest.Git(t, b.source, nil, "log", "--format=%s", "out"); got != "b\nfirst" || len(r.Dropped) != 2 || r.Dropped[0].Path != "h" {
		t.Errorf("the log is %q; left out: %+v", got, r.Dropped)
	}
	if got := gittest.Git(t, b.source, nil, "show", "out:h"); got != "h1" {
		t.Errorf("the hidden file is %q", got)
	}
	b.run("git reset -q --hard HEAD^^^; echo evil >h; git add -f h; git commit -qm h")
	if _, err := b.transplant(Plan{}); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("hidden files alone: %v", err)
	}
}

// The unsaved refs are those with commits that are nowhere else.
func TestUnsaved(t *testing.T) {
	testenv.Command(t, "git")
	b := newBox(t, gittest.Repository(t, "echo b >>a; git commit -qam second"), "clean:50", "h")
	want := func(names ...string) {
		t.Helper()
		got, err := b.store.Unsaved()
		if diff := cmp.Diff(names, got); diff != "" || err != nil {
			t.Errorf("%v (-want +got)\n%s", err, diff)
		}
	}
	want()
	b.run("git branch old HEAD^; git tag t; git checkout -q HEAD^")
	want()
	b.run("git checkout -q main; echo c >c; git add c; git stash -q; git checkout -q -b x; echo d >d; git add d; git commit -qm d; git checkout -q --detach; git commit -q --allow-empty -m e")
	want("HEAD", "refs/heads/x", "refs/stash")
	b.run("git checkout -q x; git stash drop -q")
	taken, err := b.take()
	if err != nil {
		t.Fatal(err)
	}
	if got := taken.Refs(); !cmp.Equal(got, []string{"refs/heads/x"}) {
		t.Errorf("refs %q", got)
	}
	if err := errors.Join(taken.Close(), b.store.NoteTaken(map[string]cleangit.Became{taken.Commits[0].ID: {}})); err != nil {
		t.Fatal(err)
	}
	want()
}

// A merge with an older commit as its first parent changes nothing, but would set back what the
// source has changed since: also hidden files. It is refused. One that only brings the newer commit
// is not.
func TestAMergeSetsNothingBack(t *testing.T) {
	testenv.Command(t, "git")
	b := newBox(t, gittest.Repository(t, "echo 1 >h; echo 1 >read-only; git add .; git commit -qm 1; echo 2 >h; echo 2 >read-only; git commit -qam 2"), "clean:50", "h")
	b.run(`git reset -q --hard $(git commit-tree -p HEAD^ -p HEAD -m back HEAD^^{tree})`)
	r, err := b.transplant(Plan{})
	if err != nil || r.Tip != "" {
		t.Fatalf("%+v, %v", r, err)
	}
	var refused []string
	for _, x := range r.Refused {
		refused = append(refused, x.Path)
	}
	if want := []string{"h", "read-only"}; !cmp.Equal(refused, want) {
		t.Errorf("refused %q, want %q", refused, want)
	}
	b = newBox(t, gittest.Repository(t, "echo 2 >c; git add .; git commit -qm 2"), "clean:50", "h")
	b.run("git checkout -q -b topic HEAD^; echo 3 >d; git add d; git commit -qm d; git merge -q main")
	if r, err := b.transplant(Plan{}); err != nil || r.Tip == "" {
		t.Errorf("%+v, %v", r, err)
	}
}

// Nothing of a hostile repository but objects is used, and nothing of it runs.
func TestTakingRunsNothing(t *testing.T) {
	testenv.Command(t, "git")
	b := newBox(t, gittest.Repository(t, ""), "clean:50", "h")
	secret := gittest.Repository(t, "")
	mark := filepath.Join(t.TempDir(), "ran")
	b.run("echo b >b; git add b; git commit -qm b; " + fmt.Sprintf(`
git config core.fsmonitor "touch %[1]s"; git config core.alternateRefsCommand "touch %[1]s"; git config uploadpack.packObjectsHook "touch %[1]s"
for h in reference-transaction post-index-change pre-commit; do printf '#!/bin/sh\ntouch %[1]s\n' >$GIT_DIR/hooks/$h; chmod +x $GIT_DIR/hooks/$h; done
echo %[2]s/.git/objects >$GIT_DIR/objects/info/alternates
C=$(cat $GIT_DIR/refs/heads/main); mkdir -p $GIT_DIR/refs/replace; echo %[3]s >$GIT_DIR/refs/replace/$C; echo $C >$GIT_DIR/info/grafts; echo $C >$GIT_DIR/shallow
mkfifo $GIT_DIR/objects/info/packs; echo '* filter=evil' >$GIT_DIR/info/attributes`, mark, secret, gittest.Git(t, secret, nil, "rev-parse", "HEAD")))
	r, err := b.transplant(Plan{})
	if err != nil || len(r.Moved) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := os.Lstat(mark); err == nil {
		t.Error("something of the repository ran")
	}
	// An object that only the alternate has is missing.
	gittest.Script(t, secret, "echo x >x; git add x")
	b.run(fmt.Sprintf("rm $GIT_DIR/shallow $GIT_DIR/info/grafts; git update-index --add --cacheinfo 100644,%s,x; git commit -qm x", gittest.Git(t, secret, nil, "hash-object", "x")))
	if _, err := b.transplant(Plan{}); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("an object of the alternate: %v", err)
	}
}

// Objects are verified by their ids, and large ones are refused.
func TestLooseObjects(t *testing.T) {
	testenv.Command(t, "git")
	dir := gittest.Repository(t, "echo c >c; git add c; git commit -qm c; git commit -qm e --allow-empty; head -c 300000 /dev/urandom >r; git add r; git tag -am t t")
	objects, err := os.Open(filepath.Join(dir, ".git/objects"))
	if err != nil {
		t.Fatal(err)
	}
	defer objects.Close()
	good := len(strings.Fields(gittest.Git(t, dir, nil, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")))
	blob := gittest.Git(t, dir, nil, "rev-parse", "HEAD:a")
	gittest.Script(t, dir, "cd .git/objects; mkdir -p 12; cp "+blob[:2]+"/"+blob[2:]+" 12/34567890123456789012345678901234567890; echo x >12/34567890123456789012345678901234567891; ln -s /etc/passwd 12/34567890123456789012345678901234567892")
	p, err := newLoosePack(40)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if err := p.addAll(t.Context(), objects); err != nil || int(p.count) != good {
		t.Fatalf("%d objects of %d, %v", p.count, good, err)
	}
	pack, err := p.reader()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(pack)
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	gittest.Git(t, to, nil, "init", "-q")
	gittest.Git(t, to, text, "index-pack", "--stdin", "--strict")
	if got := len(strings.Fields(gittest.Git(t, to, nil, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)"))); got != good {
		t.Errorf("the pack has %d objects, want %d", got, good)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.addAll(canceled, objects); !errdefs.Is(err, errdefs.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}
