package attack_test

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// gitIn runs git in a directory of the host, with no configuration but the
// repository's.
func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "safe.directory=*"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// trackedSecrets makes a sandbox of a repository that tracks what the policy
// development hides.
func trackedSecrets(t *testing.T, who ...harness.Option) *harness.Sandbox {
	t.Helper()
	testenv.Command(t, "git")
	s := harness.New(t, binary, map[string]string{
		".env": "TOKEN=1\n", "deploy/.env": "TOKEN=2\n", "deploy/run.sh": "run\n", "a.txt": "a\n", "nested/.env": "TOKEN=3\n", "nested/b.txt": "b\n",
	}, who...)
	for _, dir := range []string{"nested", "."} {
		dir = filepath.Join(s.Source, dir)
		gitIn(t, dir, "init", "-q", "-b", "main")
		if dir == filepath.Clean(s.Source) {
			s.Write(".git/info/exclude", "/nested/\n")
		}
		gitIn(t, dir, "add", ".")
		gitIn(t, dir, "commit", "-q", "-m", "first")
	}
	ownAll(t, s)
	return s
}

// ownAll gives what a test made as itself to the user of the sandbox.
func ownAll(t *testing.T, s *harness.Sandbox) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(s.Source, "a.txt"), &st); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(s.Source, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(st.Uid), int(st.Gid))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// committing are the settings that a commit inside needs.
const committing = `export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
`

// Git inside treats hidden files as unchanged: status is clean, and committing everything
// does not delete them. The index bits for that appear in no review and are never applied.
func TestHiddenTrackedFilesSurviveGitInside(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		eachHiding(t, func(t *testing.T, h hiding) { hiddenTrackedFilesSurviveGitInside(t, h, who...) })
	})
}

func hiddenTrackedFilesSurviveGitInside(t *testing.T, h hiding, who ...harness.Option) {
	s := trackedSecrets(t, who...)
	prints(t, s, "test ! -e .env && git status --porcelain && cd nested && git status --porcelain", "", append(h.flags(".env"), "--preset", "development")...)
	if got := agentfense(t, s, "diff", s.Name, "--name-status"); got != "" {
		t.Errorf("after git status the diff shows %q", got)
	}
	r := s.Run(committing + `set -e
echo more >> a.txt; git commit -qam second
echo more >> a.txt; git stash -q; git stash pop -q
echo new > new.txt; git add -A; git commit -qm third
git reset -q --hard HEAD; git checkout -q -b side; git checkout -q main
git status --porcelain; git ls-tree -r --name-only HEAD
cd nested; echo more >> b.txt; git commit -qam second; git ls-tree -r --name-only HEAD`)
	wantCode(t, r, 0)
	if want := ".env\na.txt\ndeploy/.env\ndeploy/run.sh\nnew.txt\n.env\nb.txt\n"; r.Stdout != want {
		t.Errorf("inside: got %q, want %q", r.Stdout, want)
	}
	agentfense(t, s, "diff", s.Name)
	if got := agentfense(t, s, "apply", s.Name, "--verbose"); !strings.Contains(got, "applied\tM\t.git/index") {
		t.Errorf("what was reviewed was not applied: %s", got)
	}
	for dir, want := range map[string]string{
		".":      "H .env\nH a.txt\nH deploy/.env\nH deploy/run.sh\nH new.txt\n",
		"nested": "H .env\nH b.txt\n",
	} {
		dir = filepath.Join(s.Source, dir)
		if got := gitIn(t, dir, "ls-files", "-v"); got != want {
			t.Errorf("outside: ls-files -v: got %q, want %q", got, want)
		}
		if got := gitIn(t, dir, "status", "--porcelain"); got != "" {
			t.Errorf("outside: status: got %q", got)
		}
	}
	if got := agentfense(t, s, "diff", s.Name, "--name-status"); got != "" {
		t.Errorf("after apply the diff shows %q", got)
	}
}

// If git outside changes the source's index, the sandbox sees the new one, and the user's
// own skip-worktree bits are kept.
func TestHiddenTrackedFilesFollowTheSource(t *testing.T) {
	s := trackedSecrets(t)
	gitIn(t, s.Source, "update-index", "--skip-worktree", "deploy/.env", "deploy/run.sh")
	prints(t, s, "git ls-files -v", "S .env\nH a.txt\nS deploy/.env\nS deploy/run.sh\n", "--preset", "development")
	s.Write("c.txt", "c\n")
	gitIn(t, s.Source, "add", "c.txt")
	prints(t, s, "git ls-files -v", "S .env\nH a.txt\nH c.txt\nS deploy/.env\nS deploy/run.sh\n")
	prints(t, s, committing+"git commit -qam more && git ls-files -v", "S .env\nH a.txt\nH c.txt\nS deploy/.env\nS deploy/run.sh\n")
	agentfense(t, s, "apply", s.Name)
	if got, want := gitIn(t, s.Source, "ls-files", "-v"), "H .env\nH a.txt\nH c.txt\nS deploy/.env\nS deploy/run.sh\n"; got != want {
		t.Errorf("outside: got %q, want %q", got, want)
	}
}

// reviewed is a file of diff --json.
type reviewed struct {
	Path   string `json:"path"`
	Risk   string `json:"risk"`
	Reason string `json:"risk_reason"`
}

func review(t *testing.T, s *harness.Sandbox) []reviewed {
	t.Helper()
	var doc struct {
		Files []reviewed `json:"files"`
	}
	if err := json.Unmarshal([]byte(agentfense(t, s, "diff", s.Name, "--json")), &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Files
}

// emptyTree is the tree that each repository has.
const emptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

// A commit cannot hide among very many refs.
func TestARemovalBehindManyRefsIsMarked(t *testing.T) {
	s := trackedSecrets(t)
	wantCode(t, s.Run(committing+`set -e
for i in $(seq 40); do echo $(git rev-parse HEAD) > .git/refs/heads/z$i; done
git update-ref refs/heads/main $(git commit-tree -p HEAD -m x $(git mktree </dev/null))`, "--preset", "development"), 0)
	for _, f := range review(t, s) {
		if strings.HasSuffix(f.Path, ".git/refs/heads/main") && strings.Contains(f.Reason, "more than 32 refs have changed") {
			return
		}
	}
	t.Error("the ref that nobody looked at has no mark")
}

// Git believes what it derived into the index. A cache tree that names another
// tree does not come out, so a commit outside has what the entries say.
func TestWhatGitDerivedIntoTheIndexStaysInside(t *testing.T) {
	s := trackedSecrets(t)
	crafted := filepath.Join(s.Source, "crafted")
	t.Setenv("GIT_INDEX_FILE", crafted)
	gitIn(t, s.Source, "read-tree", "HEAD")
	s.Write("new.txt", "new\n")
	gitIn(t, s.Source, "add", "new.txt")
	if err := os.Unsetenv("GIT_INDEX_FILE"); err != nil {
		t.Fatal(err)
	}
	id := func(args ...string) []byte {
		raw, err := hex.DecodeString(strings.TrimSpace(gitIn(t, s.Source, args...)))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	index := []byte(s.Read("crafted"))
	body := bytes.Replace(index[:len(index)-sha1.Size], id("rev-parse", "HEAD:deploy"), id("hash-object", "-t", "tree", "/dev/null"), 1)
	if bytes.HasPrefix(index, body) {
		t.Fatal("there is no cache tree to change")
	}
	sum := sha1.Sum(body)
	s.Write("crafted", string(append(body, sum[:]...)))
	wantCode(t, s.Run("cp crafted .git/index", "--preset", "development"), 0)
	agentfense(t, s, "apply", s.Name)
	gitIn(t, s.Source, "commit", "-q", "-m", "outside")
	want := ".env\na.txt\ndeploy/.env\ndeploy/run.sh\nnew.txt\n"
	if got := gitIn(t, s.Source, "ls-tree", "-r", "--name-only", "HEAD"); got != want {
		t.Errorf("a commit outside has %q, want %q", got, want)
	}
}

// What would make git lose a hidden file comes first in the review, by whatever
// way it was made: by an index that lacks it, by a commit, on a branch of its
// own, or in packed refs.
func TestARemovalOfHiddenFilesIsMarkedFirst(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		marked map[string]string
	}{
		"staged": {"git rm -q --cached --sparse .env", map[string]string{"/.git/index": "git index without hidden .env"}},
		"the index is gone": {"rm .git/index", map[string]string{
			"/.git/index": "git index without hidden .env and 1 more",
		}},
		"committed": {"git rm -q --cached --sparse .env; git commit -qm x", map[string]string{
			"/.git/index": "git index without hidden .env", "/.git/refs/heads/main": "git commit without hidden .env",
		}},
		"committed by plumbing, in a pack": {
			"git update-ref refs/heads/main $(git commit-tree -p HEAD -m x $(git mktree </dev/null)); git pack-refs --all; git gc -q; git repack -qad",
			map[string]string{
				"/.git/packed-refs": "git commit without hidden .env and 1 more",
				// applied alone, this brings the older commit back
				"/.git/refs/heads/main": "git commit without hidden .env and 1 more",
			},
		},
		"on another branch": {"git update-ref refs/heads/other $(git commit-tree -m x $(git mktree </dev/null))", map[string]string{
			"/.git/refs/heads/other": "git commit without hidden .env and 1 more",
		}},
		"staged in a split index": {"git rm -q --cached --sparse .env; git update-index --split-index", map[string]string{
			"/.git/index": "git index, not checked for removed hidden files: it cannot be read, or is split",
		}},
		"the index is a FIFO": {"rm .git/index; mkfifo .git/index", map[string]string{
			"/.git/index": "git index, not checked for removed hidden files: it cannot be read, or is split",
		}},
		"emptied in the index": {"git update-index --cacheinfo 100644,$(git hash-object -w /dev/null),.env", map[string]string{
			"/.git/index": "git index with another hidden .env",
		}},
		"emptied by a commit": {
			"git read-tree HEAD; git update-index --cacheinfo 100644,$(git hash-object -w /dev/null),.env; git update-ref refs/heads/main $(git commit-tree -p HEAD -m x $(git write-tree)); git read-tree HEAD^",
			map[string]string{"/.git/refs/heads/main": "git commit with another hidden .env"},
		},
		"by another name for a commit": {
			"git commit-tree -m x $(git mktree </dev/null) > .git/X_HEAD; echo ref: X_HEAD > .git/refs/heads/main",
			map[string]string{"/.git/refs/heads/main": `git ref, not checked for removed hidden files: it stands for "X_HEAD"`},
		},
		"an older commit comes back": {"rm .git/refs/heads/main", map[string]string{
			"/.git/refs/heads/main": "git commit without hidden .env and 1 more",
		}},
		"in a reftable": {"mkdir .git/reftable; echo x > .git/reftable/tables.list", map[string]string{
			"/.git/reftable/tables.list": "git ref, not checked for removed hidden files: the refs are a reftable",
		}},
		"nothing is removed": {"echo b >> a.txt; git commit -qam b", map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := trackedSecrets(t)
			first := strings.TrimSpace(gitIn(t, s.Source, "rev-parse", "HEAD"))
			gitIn(t, s.Source, "update-ref", "HEAD", strings.TrimSpace(gitIn(t, s.Source, "commit-tree", "-m", "x", emptyTree)))
			gitIn(t, s.Source, "pack-refs", "--all")
			gitIn(t, s.Source, "update-ref", "HEAD", first)
			wantCode(t, s.Run(committing+"set -e\necho x > run-me; chmod +x run-me\n"+c.script, "--preset", "development"), 0)
			got, last := map[string]string{}, true
			for _, f := range review(t, s) {
				p := "/" + strings.TrimPrefix(f.Path, "/")
				if !strings.Contains(f.Reason, "hidden") {
					last = false
					continue
				}
				if got[p] = f.Reason; !last || f.Risk != "runs_on_host" {
					t.Errorf("%s, %s, comes after what removes nothing", p, f.Risk)
				}
			}
			if !maps.Equal(got, c.marked) {
				t.Errorf("marked: %q, want %q", got, c.marked)
			}
		})
	}
}

// A hostile repository runs nothing when its index and history are looked at,
// and the look ends.
func TestLookingAtAHostileRepositoryRunsNothing(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := trackedSecrets(t, who...)
		gitIn(t, s.Source, "rm", "-q", "deploy/.env")
		gitIn(t, s.Source, "commit", "-q", "-m", "second")
		pwned := filepath.Join(s.Source, "pwned")
		config := strings.ReplaceAll(`[core]
	fsmonitor = RUN
	pager = RUN
	hooksPath = .git/evil
	sshCommand = RUN
[include]
	path = fifo
[diff]
	external = RUN
[filter "evil"]
	clean = RUN
[credential]
	helper = !RUN
[alias]
	log = !RUN
[extensions]
	partialClone = evil
[remote "evil"]
	promisor = true
	url = ext::sh -c RUN
`, "RUN", "touch "+pwned)
		s.Write(".git/config", config)
		s.Write(".git/evil/post-index-change", "#!/bin/sh\ntouch "+pwned+"\n")
		s.Write(".gitattributes", "* filter=evil diff=evil\n")
		if err := unix.Mkfifo(filepath.Join(s.Source, ".git/fifo"), 0o644); err != nil {
			t.Fatal(err)
		}
		ownAll(t, s)
		says := func(r harness.Result, want ...string) {
			t.Helper()
			wantCode(t, r, 0)
			for _, w := range want {
				if !strings.Contains(r.Stdout+r.Stderr, w) {
					t.Errorf("%q is not said:\n%s%s", w, r.Stdout, r.Stderr)
				}
			}
		}
		index, history := "git tracks 1 file that the policy hides: .env", "git's history has 1 file that the policy hides: deploy/.env"
		says(s.Agentfense("policy", "explain", "--preset", "development", ".env"), index, history, "--hide .git/")
		says(s.Run("true", "--preset", "development"), index, history, "--hide .git/")
		says(s.Agentfense("diff", s.Name))
		// What the repository lacks is said, not fetched; what never answers is left.
		for _, object := range []func(path string) error{os.Remove, func(path string) error { return unix.Mkfifo(path, 0o644) }} {
			tip := strings.TrimSpace(s.Read(".git/refs/heads/main"))
			if err := object(filepath.Join(s.Source, ".git/objects", tip[:2], tip[2:])); err != nil {
				t.Fatal(err)
			}
			says(s.Agentfense("policy", "explain", "--preset", "development", ".env"), index, "not fully checked")
		}
		if exists(pwned) {
			t.Error("something of the repository ran")
		}
	})
}

// When the policy changes, so do the bits, in an index that the sandbox has
// written as well. One that git inside has only refreshed does not keep back
// what git outside does later.
func TestHiddenTrackedFilesFollowThePolicy(t *testing.T) {
	s := trackedSecrets(t)
	const inside = "git status --porcelain; git ls-files -v a.txt .env deploy"
	prints(t, s, inside, "S .env\nH a.txt\nS deploy/.env\nH deploy/run.sh\n", "--preset", "development")
	s.Write("c.txt", "c\n")
	gitIn(t, s.Source, "add", "c.txt")
	gitIn(t, s.Source, "commit", "-q", "-m", "outside")
	prints(t, s, inside, "S .env\nH a.txt\nS deploy/.env\nH deploy/run.sh\n")
	prints(t, s, committing+"echo more >> a.txt; git commit -qam inside; "+inside, "S .env\nH a.txt\nS deploy/.env\nH deploy/run.sh\n")
	prints(t, s, inside, "H .env\nH a.txt\nH deploy/.env\nS deploy/run.sh\n", "--preset", "full-access", "--hide", "/deploy/run.sh")
	agentfense(t, s, "apply", s.Name)
	if got, want := gitIn(t, s.Source, "ls-files", "-v"), "H .env\nH a.txt\nH c.txt\nH deploy/.env\nH deploy/run.sh\n"; got != want {
		t.Errorf("outside: got %q, want %q", got, want)
	}
}

// A policy that changes while a command runs changes the index that is shown.
func TestHiddenTrackedFilesFollowALivePolicy(t *testing.T) {
	s := trackedSecrets(t)
	wantCode(t, s.Agentfense("run", "--name", s.Name, "--preset", "full-access", "--detach"), 0)
	defer s.Agentfense("stop", s.Name)
	for _, step := range []struct{ preset, want string }{
		{"full-access", "H .env\n"}, {"development", "S .env\n"}, {"full-access", "H .env\n"},
	} {
		agentfense(t, s, "policy", "set", s.Name, "--preset", step.preset)
		if got := agentfense(t, s, "exec", s.Name, "--", "git", "ls-files", "-v", ".env"); got != step.want {
			t.Errorf("%s: got %q, want %q", step.preset, got, step.want)
		}
	}
}
