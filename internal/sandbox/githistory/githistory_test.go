package githistory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// repo is a repository of the host.
type repo struct {
	t   *testing.T
	dir string
}

func newRepo(t *testing.T, format string) *repo {
	t.Helper()
	testenv.Command(t, "git")
	r := &repo{t, t.TempDir()}
	r.git("init", "-q", "-b", "main", "--object-format="+format)
	return r
}

func (r *repo) git(args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r *repo) write(name, content string) {
	r.t.Helper()
	full := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *repo) commit(name string) string {
	r.write(name, "content of "+name)
	r.git("add", "-A")
	r.git("commit", "-q", "-m", name)
	return r.git("rev-parse", "HEAD")
}

// open opens the git directory and its objects.
func (r *repo) open() (dir *os.File, o Objects) {
	r.t.Helper()
	for _, name := range []string{".git", ".git/objects"} {
		f, err := os.Open(filepath.Join(r.dir, name))
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { f.Close() })
		dir, o = or(dir, f), Objects{f}
	}
	return dir, o
}

func or(a, b *os.File) *os.File {
	if a != nil {
		return a
	}
	return b
}

// history asks for all paths of the repository, sorted.
func (r *repo) history() ([]string, error) {
	r.t.Helper()
	dir, o := r.open()
	refs, err := ReadRefs(int(dir.Fd()))
	if err != nil {
		return nil, err
	}
	shallow, err := ReadShallow(int(dir.Fd()))
	if err != nil {
		return nil, err
	}
	var paths []string
	err = Paths(r.t.Context(), o, refs.Tips(), shallow, func(p string) bool {
		paths = append(paths, p)
		return true
	})
	slices.Sort(paths)
	return slices.Compact(paths), err
}

func (r *repo) wantHistory(want ...string) {
	r.t.Helper()
	got, err := r.history()
	if err != nil || !slices.Equal(got, want) {
		r.t.Errorf("history: got %q, %v, want %q", got, err, want)
	}
}

func TestPathsAreThoseOfEveryCommit(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			r := newRepo(t, format)
			r.commit(".env")
			r.git("rm", "-q", ".env")
			r.commit("a")
			r.git("checkout", "-q", "-b", "side", "HEAD~1")
			r.commit("side/\xff\nodd")
			r.git("merge", "-q", "--no-commit", "main")
			r.commit("only in the merge")
			r.git("checkout", "-q", "main")
			r.git("pack-refs", "--all")
			r.git("gc", "-q")
			r.git("checkout", "-q", "--detach")
			r.commit("detached")
			r.wantHistory(".env", "a", "detached", "only in the merge", "side/\xff\nodd")
		})
	}
}

func TestPathsOfAnEmptyAndOfAShallowRepository(t *testing.T) {
	r := newRepo(t, "sha1")
	r.wantHistory()
	r.commit("a")
	r.commit("b")
	clone := &repo{t, t.TempDir()}
	clone.git("clone", "-q", "--depth", "1", "file://"+r.dir, ".")
	clone.wantHistory("a", "b")
}

// No configuration of the repository is read, nothing runs, nothing waits for
// ever.
func TestAHostileRepositoryRunsNothing(t *testing.T) {
	r := newRepo(t, "sha1")
	first := r.commit(".env")
	r.commit("b")
	r.write(".gitattributes", "* diff=evil filter=evil\n")
	r.commit("c")
	mark := filepath.Join(r.dir, "pwned")
	run := "touch " + mark
	config := fmt.Sprintf(`[core]
	repositoryformatversion = 1
	fsmonitor = %[1]s
	hooksPath = %[2]s/.git/evil
	pager = %[1]s
	sshCommand = %[1]s
	gitProxy = %[1]s
[include]
	path = fifo
[diff]
	external = %[1]s
[diff "evil"]
	textconv = %[1]s
	command = %[1]s
[filter "evil"]
	clean = %[1]s
	smudge = %[1]s
[credential]
	helper = !%[1]s
[gpg]
	program = %[1]s
[log]
	showSignature = true
[alias]
	log = !%[1]s
	diff-tree = !%[1]s
[extensions]
	partialClone = evil
[remote "evil"]
	promisor = true
	url = ext::sh -c "%[1]s"
`, run, r.dir)
	if err := os.WriteFile(filepath.Join(r.dir, ".git/config"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(r.dir, ".git/fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := r.history()
	if want := []string{".env", ".gitattributes", "b", "c"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	dir, o := r.open()
	refs, err := ReadRefs(int(dir.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if commits, err := Commits(t.Context(), o, refs.Tips(), []string{first}, nil, 10, false); err != nil || len(commits) != 2 {
		t.Errorf("commits: got %v, %v", commits, err)
	}
	// An object that is missing is not fetched.
	object := filepath.Join(r.dir, ".git/objects", first[:2], first[2:])
	if err := os.Remove(object); err != nil {
		t.Fatal(err)
	}
	if _, err := r.history(); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("with an object missing: %v", err)
	}
	if _, err := os.Lstat(mark); err == nil {
		t.Error("something of the repository ran")
	}
	// One that nobody writes ends with the context.
	if err := unix.Mkfifo(object, 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := Paths(ctx, o, refs.Tips(), nil, func(string) bool { return true }); err == nil {
		t.Error("a FIFO among the objects was taken for one")
	}
}

func TestRefsThatAreNoFilesAreRefusedAndNotFollowed(t *testing.T) {
	for name, make := range map[string]func(dir string) error{
		"a FIFO": func(dir string) error { return unix.Mkfifo(dir+"/refs/heads/x", 0o644) },
		"a link": func(dir string) error { return os.Symlink("/etc/passwd", dir+"/refs/heads/x") },
		"a HEAD that is a FIFO": func(dir string) error {
			return cmpErr(os.Remove(dir+"/HEAD"), unix.Mkfifo(dir+"/HEAD", 0o644))
		},
		"a directory elsewhere": func(dir string) error { return os.WriteFile(dir+"/commondir", []byte("/tmp"), 0o644) },
		"a reftable":            func(dir string) error { return os.Mkdir(dir+"/reftable", 0o755) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRepo(t, "sha1")
			r.commit("a")
			if err := make(filepath.Join(r.dir, ".git")); err != nil {
				t.Fatal(err)
			}
			if got, err := r.history(); err == nil {
				t.Errorf("got %q and no error", got)
			}
		})
	}
}

func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestChangedIsWhatTheTipLacksOrHasOtherwise(t *testing.T) {
	r := newRepo(t, "sha1")
	r.commit("dir/.env")
	r.commit("c/.env")
	base := r.commit("a")
	r.git("rm", "-q", "dir/.env")
	r.git("update-index", "--cacheinfo", "100644,"+r.git("hash-object", "-w", "/dev/null")+",c/.env")
	r.git("commit", "-q", "-m", "b")
	tip := r.git("rev-parse", "HEAD")
	_, o := r.open()
	got := map[string]bool{}
	err := Changed(t.Context(), o, base, tip, func(p string, gone bool) bool { got[p] = gone; return true })
	if err != nil || !maps.Equal(got, map[string]bool{"dir/.env": true, "c/.env": false}) {
		t.Errorf("got %v, %v", got, err)
	}
	if err := Changed(t.Context(), o, base, "--output=x", nil); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("an option for an object: %v", err)
	}
}

// longHistory makes a repository of n commits whose names fill more than a pipe
// holds.
func longHistory(t *testing.T, n int) *repo {
	r := newRepo(t, "sha1")
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "commit refs/heads/main\ncommitter a <a@example.org> %d +0000\ndata 1\nx\nM 644 inline %s%d\ndata 1\nx\n\n", 1_700_000_000+i, strings.Repeat("n", 200), i)
	}
	cmd := exec.Command("git", "fast-import", "--quiet")
	cmd.Dir, cmd.Stdin = r.dir, strings.NewReader(text.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("fast-import: %v\n%s", err, out)
	}
	return r
}

func TestALongHistoryEndsWithTheContextOrWithTheAsker(t *testing.T) {
	r := longHistory(t, 3000)
	dir, o := r.open()
	refs, err := ReadRefs(int(dir.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err = Paths(ctx, o, refs.Tips(), nil, func(string) bool { cancel(); return true })
	if !errdefs.Is(err, errdefs.Deadline) {
		t.Errorf("with a context that ends: %v", err)
	}
	told := 0
	err = Paths(t.Context(), o, refs.Tips(), nil, func(string) bool { told++; return told < 3 })
	if err != nil || told != 3 {
		t.Errorf("with enough after 3: %d, %v", told, err)
	}
}

func TestAListOfAlternatesIsRegularAndBounded(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"a link to an endless device": func(path string) error { return os.Symlink("/dev/zero", path) },
		"a FIFO":                      func(path string) error { return unix.Mkfifo(path, 0o644) },
		"a huge file": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, 1<<40))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRepo(t, "sha1")
			tip := r.commit("a")
			if err := make(filepath.Join(r.dir, ".git/objects/info/alternates")); err != nil {
				t.Fatal(err)
			}
			_, o := r.open()
			err := Paths(t.Context(), o, []string{tip}, nil, func(string) bool { return true })
			if !errdefs.Is(err, errdefs.Precondition) || !strings.Contains(err.Error(), "alternates") {
				t.Errorf("got %v", err)
			}
		})
	}
}
