package transactions_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// repository is a source with git, of which a sandbox has commits.
type repository struct {
	t         *testing.T
	dir, home string
}

// setUp makes the source and the commits, which change, remove and make files and directories.
const setUp = `set -e
git init -q -b main .
mkdir gone; echo 1 >changed; echo 2 >removed; echo 3 >gone/file; echo 4 >other; ln -s changed link; chmod 755 changed
git add .; git commit -qm first`

// editOutside is what a person does meanwhile, at other paths.
const editOutside = "echo staged >staged; git add staged; echo more >>other; echo u >untracked"

const commitInside = `set -e
git config user.name A; git config user.email a@b
echo 2 >>changed; chmod 644 changed; git rm -q removed; git commit -qam 1
git rm -qr gone; mkdir -p made/deep; echo 5 >made/deep/file; rm link; ln -s made link; git add .; git commit -qm 2`

func newRepository(t *testing.T) *repository {
	testenv.Bwrap(t)
	testenv.FUSE(t)
	testenv.Overlay(t)
	testenv.Command(t, "git")
	r := &repository{t, filepath.Join(t.TempDir(), "src"), filepath.Join(t.TempDir(), "home")}
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.must("sh", "-c", setUp)
	r.must(binary, "run", "--name", "s", "--git=clean", "--preset", "development", "--", "sh", "-c", commitInside)
	r.must("sh", "-c", editOutside)
	return r
}

// command runs a program in the source, which is killed at a point.
func (r *repository) command(point, name string, args ...string) (string, error) {
	armed := filepath.Join(filepath.Dir(r.home), "point")
	if err := os.WriteFile(armed, []byte(point), 0o600); err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.CommandContext(r.t.Context(), name, args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "AGENTFENSE_HOME="+r.home, failpoint.Variable+"="+armed, "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=Y", "GIT_AUTHOR_EMAIL=y@z", "GIT_COMMITTER_NAME=Y", "GIT_COMMITTER_EMAIL=y@z", "GIT_AUTHOR_DATE=1000000000 +0000", "GIT_COMMITTER_DATE=1000000000 +0000")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r *repository) must(name string, args ...string) string {
	r.t.Helper()
	out, err := r.command("", name, args...)
	if err != nil {
		r.t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return out
}

// state is everything that a person sees of the source.
func (r *repository) state() string {
	r.t.Helper()
	return r.must("sh", "-c", `git rev-parse HEAD main; git symbolic-ref HEAD; git status --porcelain; git ls-files -s
		find . -path ./.git -prune -o -printf '%P %y %m %l\n' | sort; find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum
		ls .git | grep -v -e ORIG_HEAD; git fsck --strict --no-dangling`)
}

// kill runs the program, which has to be killed at a point, and then recovers.
func (r *repository) kill(point string, args ...string) {
	r.t.Helper()
	r.killOnly(point, args...)
	r.recover()
}

// killOnly is kill without the recovery.
func (r *repository) killOnly(point string, args ...string) {
	r.t.Helper()
	out, err := r.command(point, binary, args...)
	exit, is := errors.AsType[*exec.ExitError](err)
	if !is || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		r.t.Fatalf("%q was not killed at %q: %v\n%s", args, point, err, out)
	}
}

// recover does what the next command does first.
func (r *repository) recover() {
	r.t.Helper()
	home, err := record.OpenHomeAt(r.home)
	if err != nil {
		r.t.Fatal(err)
	}
	sb, err := home.Open("s")
	if err != nil {
		r.t.Fatal(err)
	}
	if err := apply.RecoverSource(sb, nil, nil); err != nil {
		r.t.Fatal(err)
	}
}

// An apply of commits that is killed at any step, and its undo, have changed all or nothing: the
// branch, the index and the work tree.
func TestKilledAppliesOfCommitsAreWhole(t *testing.T) {
	r := newRepository(t)
	before := r.state()
	commits := []string{"apply", "s", "--commits"}
	for _, point := range []string{
		"journal: made", "journal: ready", "journal: index locked", "checkout: one removed", "checkout: directory made", "sync: moved away",
		"journal: taken", "journal: placing", "sync: swapped", "sync: one placed", "journal: moving branch",
	} {
		r.kill(point, commits...)
		if now := r.state(); now != before {
			t.Fatalf("killed at %q:\n%s\nwant\n%s", point, now, before)
		}
	}
	r.must(binary, commits...)
	after := r.state()
	if !strings.Contains(after, "made/deep/file") || after == before {
		t.Fatalf("applied:\n%s", after)
	}
	for _, point := range []string{"history: one moved", "sync: swapped", "journal: taken", "journal: moving branch"} {
		r.kill(point, "undo", "--yes")
		if now := r.state(); now != after {
			t.Fatalf("undo killed at %q:\n%s\nwant\n%s", point, now, after)
		}
	}
	for _, point := range []string{"journal: moved branch", "journal: index unlocked", "journal: committed"} {
		r.kill(point, "undo", "--yes")
		if now := r.state(); now != before {
			t.Fatalf("undo killed at %q:\n%s\nwant\n%s", point, now, before)
		}
		r.kill(point, commits...)
		if now := r.state(); now != after {
			t.Fatalf("killed at %q:\n%s\nwant\n%s", point, now, after)
		}
	}
	r.must(binary, "undo", "--yes")
	r.killOnly("journal: moved branch", commits...)
	r.kill("journal: completed", "apply", "s", "there/is/no/such/change")
	if now := r.state(); now != after {
		t.Fatalf("killed while it was completed:\n%s\nwant\n%s", now, after)
	}
	r.must(binary, "undo", "--yes")
	if now := r.state(); now != before {
		t.Fatalf("undone:\n%s\nwant\n%s", now, before)
	}
}

// When an apply of commits has moved the branch and is killed, nothing takes its files back: the
// owner may have committed on top since, or renamed the branch. The commits are not made again.
func TestAKilledApplyOfCommitsIsNotTakenBackLater(t *testing.T) {
	r := newRepository(t)
	commits := []string{"apply", "s", "--commits"}
	for _, c := range []struct{ point, does string }{
		{"journal: moved branch", "git branch -m main trunk"},
		{"journal: index unlocked", "git commit -qm mine"},
		{"journal: index unlocked", "git commit -q --amend -m mine"},
		{"journal: index unlocked", "git commit -qm mine && git switch -qc elsewhere"},
	} {
		start := r.must("git", "rev-parse", "HEAD")
		r.killOnly(c.point, commits...)
		r.must("sh", "-c", c.does)
		want := r.must("sh", "-c", "git ls-files -s; git diff; cat made/deep/file")
		r.recover()
		if now := r.must("sh", "-c", "git ls-files -s; git diff; cat made/deep/file"); now != want {
			t.Fatalf("killed at %q, then %s:\n%s\nwant\n%s", c.point, c.does, now, want)
		}
		r.must("sh", "-c", "rm -f .git/index.lock; git switch -qC main "+strings.TrimSpace(start)+" -f; "+editOutside)
	}
	r.killOnly("journal: moved branch", commits...)
	head := r.must("git", "rev-parse", "HEAD")
	if out, err := r.command("", binary, commits...); err == nil || !strings.Contains(out, "has no new commits") {
		t.Fatalf("%v\n%s", err, out)
	}
	if now := r.must("git", "rev-parse", "HEAD"); now != head {
		t.Fatalf("the branch is at %s, not at %s", now, head)
	}
	if out := r.must(binary, "commits", "s"); !strings.Contains(out, "(applied)") {
		t.Fatalf("commits:\n%s", out)
	}
}

// An undo completes or restores first what a killed apply of commits has left.
func TestUndoAfterAKilledApplyOfCommits(t *testing.T) {
	r := newRepository(t)
	before := r.state()
	r.killOnly("journal: moved branch", "apply", "s", "--commits")
	r.must(binary, "undo", "--yes", "s")
	if now := r.state(); now != before {
		t.Fatalf("undone:\n%s\nwant\n%s", now, before)
	}
	r.killOnly("journal: moving branch", "apply", "s", "--commits")
	if out, err := r.command("", binary, "undo", "--yes", "s"); err == nil || !strings.Contains(out, "the source is restored") {
		t.Fatalf("%v\n%s", err, out)
	}
	if now := r.state(); now != before {
		t.Fatalf("restored:\n%s\nwant\n%s", now, before)
	}
}

// slowGit is git that, when it is to move a branch, kills its parent, and begins only when it is
// let go.
const slowGit = `#!/bin/sh
case " $* " in *" update-ref "*)
	case $(tr '\0' ' ' </proc/$PPID/cmdline) in *" apply "*)
		kill -9 $PPID
		until [ -e "$0.go" ]; do sleep 0.05; done
		/usr/bin/git "$@"
		exec 3>&-
		touch "$0.done"
		exit ;;
	esac ;;
esac
exec /usr/bin/git "$@"
`

// A git that outlives the killed process that started it still moves the branch. Nothing is
// recovered before it ends.
func TestAGitThatOutlivesItsParentIsWaitedFor(t *testing.T) {
	r := newRepository(t)
	before := r.state()
	slow := filepath.Join(t.TempDir(), "git")
	if err := os.WriteFile(slow, []byte(slowGit), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(slow)+":"+os.Getenv("PATH"))
	r.kill("", "apply", "s", "--commits")
	if err := os.WriteFile(slow+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.must("sh", "-c", "until [ -e "+slow+".done ]; do sleep 0.05; done")
	r.recover()
	after := r.state()
	if !strings.Contains(after, "made/deep/file") || strings.Contains(after, "lock") {
		t.Fatalf("recovered:\n%s", after)
	}
	r.must(binary, "undo", "--yes")
	if now := r.state(); now != before {
		t.Fatalf("undone:\n%s\nwant\n%s", now, before)
	}
}
