package cleangit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/sandbox/gitrun/gittest"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// makeIn makes a clean repository in a cache.
func makeIn(t *testing.T, c Cache, dir string, mode Mode, p *policy.Policy) *Made {
	t.Helper()
	workspace, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer workspace.Close()
	made, err := c.Make(t.Context(), workspace, mode, p)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func entries(t *testing.T, c Cache) []string {
	t.Helper()
	list, err := os.ReadDir(string(c))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// The same head, rules and depth are made once, also by several at a time, and anything else anew.
func TestTheCacheIsByWhatTheRepositoryDependsOn(t *testing.T) {
	testenv.Command(t, "git")
	dir, c := gittest.Repository(t, ""), CacheIn(t.TempDir())
	p := rulesHiding(t, "h")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			workspace, err := os.Open(dir)
			if err == nil {
				defer workspace.Close()
				_, err = c.Make(t.Context(), workspace, "clean:50", p)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	first := makeIn(t, c, dir, "clean:50", p)
	if got := entries(t, c); !slices.Equal(got, []string{first.key}) {
		t.Errorf("the cache has %v", got)
	}
	if again := makeIn(t, c, dir, "clean:50", rulesHiding(t)); again.key == first.key || again.Info.Hides {
		t.Error("rules that hide less give the same repository")
	}
	if again := makeIn(t, c, dir, "clean:1", p); again.key == first.key {
		t.Error("another depth gives the same repository")
	}
	gittest.Git(t, dir, nil, "commit", "-q", "--allow-empty", "-m", "x")
	if again := makeIn(t, c, dir, "clean:50", p); again.key == first.key || again.Info.Commits != 2 {
		t.Errorf("another head gives %+v", again.Info)
	}
}

// The cache keeps what was used last, and nothing of a process that was killed.
func TestTheCacheIsBounded(t *testing.T) {
	testenv.Command(t, "git")
	dir, c := gittest.Repository(t, ""), CacheIn(t.TempDir())
	first := makeIn(t, c, dir, "clean:50", rulesHiding(t, "h"))
	long := time.Now().Add(-2 * makingTimeout)
	for i := range maxCached {
		if err := os.Mkdir(filepath.Join(string(c), fmt.Sprintf("old-%02d", i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	old := makingPrefix + "old"
	for _, name := range append(slices.DeleteFunc(entries(t, c), func(n string) bool { return n == first.key }), old) {
		path := filepath.Join(string(c), name)
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, long, long); err != nil {
			t.Fatal(err)
		}
	}
	second := makeIn(t, c, dir, "clean:1", rulesHiding(t, "h"))
	got := entries(t, c)
	if len(got) != maxCached || !slices.Contains(got, first.key) || !slices.Contains(got, second.key) || slices.Contains(got, old) {
		t.Errorf("the cache has %v", got)
	}
	if err := os.RemoveAll(first.dir()); err != nil {
		t.Fatal(err)
	}
	if err := first.Fill(t.TempDir()); !errdefs.Is(err, errdefs.Unavailable) {
		t.Errorf("what was removed meanwhile: %v", err)
	}
}

// The index marks what is not checked out outside, and tracked files that are listed without their
// content are ignored.
func TestTheIndexFollowsTheSource(t *testing.T) {
	testenv.Command(t, "git")
	dir := gittest.Repository(t, "echo s >s; printf '# h\\n*.log\\n/h\\n!/h/\\n' >.git/info/exclude; mkdir 'd [x'; echo l >'d [x/l *'; git add .; git commit -qm s; git update-index --skip-worktree s; rm s; echo staged >>a; git add a")
	p, err := policy.Compile([]policy.Rule{
		{Pattern: "**", Permission: policy.Write}, {Pattern: "/h", Permission: policy.None, Priority: 1}, {Pattern: "d*/", Permission: policy.View, Priority: 1},
	}, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	repository, _, err := makeClean(t, dir, "clean:50", p)
	if err != nil {
		t.Fatal(err)
	}
	git := func(args ...string) string {
		return gittest.Git(t, dir, nil, append([]string{"--git-dir=" + repository, "--work-tree=" + dir}, args...)...)
	}
	if got, want := git("ls-files", "-v"), "H a\nS s"; got != want {
		t.Errorf("the index has %q, want %q", got, want)
	}
	if err := os.WriteFile(filepath.Join(dir, "x.log"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := git("status", "--porcelain"), " M a\n?? h"; got != want { // h is not there inside
		t.Errorf("status: %q, want %q", got, want)
	}
	if text, err := os.ReadFile(filepath.Join(repository, "info/exclude")); err != nil || string(text) != "*.log\n/d\\ \\[x/l\\ \\*\n" {
		t.Errorf("info/exclude: %q, %v", text, err)
	}
	if text, err := os.ReadFile(filepath.Join(repository, "config")); err != nil || strings.Contains(string(text), "remote") {
		t.Errorf("config: %q, %v", text, err)
	}
}

// Rules that hide something of the history are refused, and others are not.
func TestRulesCannotHideWhatIsShown(t *testing.T) {
	testenv.Command(t, "git")
	dir := gittest.Repository(t, "git mv a b; git commit -qm b")
	repository, made, err := makeClean(t, dir, "clean:50", rulesHiding(t, "h"))
	if err != nil {
		t.Fatal(err)
	}
	store := Store(filepath.Dir(repository))
	for pattern, ok := range map[string]bool{"h": true, "new": true, "a": false, "b": false, "*": false} {
		if err := store.CheckChange(rulesHiding(t, pattern).Rules(), made.Info.Mode); (err == nil) != ok || err != nil && !errdefs.Is(err, errdefs.Precondition) {
			t.Errorf("hiding %s: %v", pattern, err)
		}
	}
}

// Who knows the id of a commit does not get what was made of it for another user.
func TestTheCacheIsByUser(t *testing.T) {
	testenv.Command(t, "git")
	dir, c, p := gittest.Repository(t, ""), CacheIn(t.TempDir()), rulesHiding(t)
	makeFor := func(user, dir string) error {
		workspace, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer workspace.Close()
		_, err = c.MakeFor(t.Context(), user, workspace, "clean:50", p)
		return err
	}
	if err := makeFor("alice", dir); err != nil {
		t.Fatal(err)
	}
	forged := t.TempDir()
	for name, text := range map[string]string{"HEAD": "ref: refs/heads/main\n", "refs/heads/main": gittest.Git(t, dir, nil, "rev-parse", "HEAD") + "\n"} {
		path := filepath.Join(forged, ".git", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(forged, ".git/objects"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := makeFor("mallory", forged); err == nil {
		t.Error("another user got the repository")
	}
}
