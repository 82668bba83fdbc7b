// Package githistory runs git to find the paths that commits of a hostile repository
// change, and to read commits in packs. It runs no program of the repository and reads none
// of its configuration: git uses an empty temporary repository with the object directories
// as alternates, opened by handle. Hooks, helpers, fetching and replacements are disabled.
// The context ends git, and its memory is limited. Git has the rights of the caller.
//
// The package reads the refs itself. It does not read work trees or indexes (see package
// gitindex), and does not know policies.
package githistory

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// memoryMax is the limit of git's address space, because objects may unpack to any size.
const memoryMax = 2 << 30

// killTimeout is how long a killed git may keep its pipes open.
const killTimeout = time.Second

// Objects are the object directories of a repository, open; the first is its
// own.
type Objects []*os.File

// Close closes them.
func (o Objects) Close() {
	for _, dir := range o {
		dir.Close()
	}
}

// Paths calls do for each path that a commit reachable from the tips adds, changes or
// removes, until do returns false. It begins with the latest commits and may repeat a path.
// Where the history ends early, shallow lists the commits without parents. Errors:
// Unsupported without a git; Deadline if ctx ends first; Precondition if git refuses,
// because objects are missing or damaged. After an error, do may have got some of the
// paths.
func Paths(ctx context.Context, o Objects, tips, shallow []string, do func(path string) bool) error {
	if len(tips) == 0 {
		return nil
	}
	return o.ask(ctx, question{
		args:    []string{"log", "--stdin", "--format=", "--name-only", "-z", "-c", "--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-missing"},
		stdin:   strings.Join(tips, "\n") + "\n",
		hash:    len(tips[0]),
		shallow: shallow,
	}, names(do))
}

// Changed calls do for each path that differs between the commits or trees base and tip,
// until do returns false. Errors: as Paths.
func Changed(ctx context.Context, o Objects, base, tip string, do func(path string, gone bool) bool) error {
	if !isObjectID(base) || !isObjectID(tip) {
		return errdefs.New(errdefs.Invalid, "git: %q or %q is no object", base, tip)
	}
	status := ""
	return o.ask(ctx, question{
		args: []string{"diff-tree", "-r", "-z", "--name-status", "--no-renames", "--no-ext-diff", "--no-textconv", "--diff-filter=DMT", base, tip},
		hash: len(base),
	}, names(func(field string) bool {
		if status == "" {
			status = field
			return true
		}
		gone := status == "D"
		status = ""
		return do(field, gone)
	}))
}

// question is one run of git.
type question struct {
	args    []string
	stdin   string
	hash    int // digits of an object id
	shallow []string
	walled  bool // git may read only the necessary files, whatever links and alternates name
}

// settings disable everything that could run a program or read outside of the object
// directories, in addition to what the empty repository does not configure, and limit
// mapped memory.
var settings = []string{
	"core.fsmonitor=false", "core.hooksPath=/dev/null", "core.attributesFile=/dev/null", "core.commitGraph=false",
	"core.multiPackIndex=false", "core.packedGitWindowSize=32m", "core.packedGitLimit=256m", "protocol.allow=never",
	"log.showSignature=false", "log.mailmap=false", "log.showRoot=true", "credential.helper=", "gc.auto=0", "maintenance.auto=false",
}

// environment returns git's whole environment.
func environment(scratch string, n int) []string {
	env := []string{
		"PATH=/usr/bin:/bin", "LC_ALL=C", "HOME=" + scratch, "XDG_CONFIG_HOME=" + scratch,
		"GIT_DIR=" + scratch, "GIT_OBJECT_DIRECTORY=" + inherited(0),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1", "GIT_GRAFT_FILE=/dev/null",
		"GIT_NO_LAZY_FETCH=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0",
		"GIT_ALLOW_PROTOCOL=", "GIT_PAGER=cat", "GIT_ASKPASS=/bin/false", "SSH_ASKPASS=/bin/false",
	}
	var others []string
	for i := 1; i < n; i++ {
		others = append(others, inherited(i))
	}
	return append(env, "GIT_ALTERNATE_OBJECT_DIRECTORIES="+strings.Join(others, ":"))
}

// inherited returns the path of the child's extra file i, in the child.
func inherited(i int) string { return fmt.Sprintf("/proc/self/fd/%d", 3+i) }

// ask runs git for a question. read reads the answer until it returns false.
func (o Objects) ask(ctx context.Context, q question, read func(out io.Reader) (more bool)) error {
	git, err := exec.LookPath("git")
	if err != nil {
		return errdefs.New(errdefs.Unsupported, "git is not installed")
	}
	if err := o.checkAlternates(); err != nil {
		return err
	}
	scratch, err := q.makeScratch()
	if err != nil {
		return errdefs.New(errdefs.Internal, "git: %w", err)
	}
	defer func() { _ = scratch.Remove() }()
	done := make(chan error, 1)
	go func() {
		// PR_SET_PDEATHSIG refers to the end of this thread, so keep it until git ends. A
		// walled thread ends with this goroutine.
		runtime.LockOSThread()
		if q.walled {
			err = o.restrictThread(scratch.Path, git)
		} else {
			defer runtime.UnlockOSThread()
		}
		if err == nil {
			err = o.run(ctx, q, git, scratch.Path, read)
		}
		done <- err
	}()
	return <-done
}

// run runs git from the calling thread.
func (o Objects) run(ctx context.Context, q question, git, scratch string, read func(out io.Reader) (more bool)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	args := []string{"--no-pager", "--no-replace-objects"}
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	cmd := exec.CommandContext(ctx, git, append(args, q.args...)...)
	cmd.Dir, cmd.Env, cmd.ExtraFiles = scratch, environment(scratch, len(o)), o
	cmd.Stdin = strings.NewReader(q.stdin)
	var complaint head
	cmd.Stderr = &complaint
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = killTimeout
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return errdefs.New(errdefs.Internal, "git: %w", err)
	}
	limit := unix.Rlimit{Cur: memoryMax, Max: memoryMax}
	_ = unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_AS, &limit, nil) // it may have ended
	if !read(out) {
		cancel(errEnough)
	}
	return explain(ctx, cmd.Wait(), complaint.line())
}

// alternatesMax is the maximum size of a list of alternates, in bytes.
const alternatesMax = 64 << 10

// checkAlternates refuses a list of alternates on which git would block, or that would fill
// its memory. Errors: Precondition.
func (o Objects) checkAlternates() error {
	for _, dir := range o {
		if _, err := readFile(int(dir.Fd()), "info/alternates", alternatesMax); err != nil {
			return errdefs.New(errdefs.Precondition, "git: objects/info/alternates: %w", err)
		}
	}
	return nil
}

// errEnough ends git when the caller needs no more output.
var errEnough = errors.New("enough")

func explain(ctx context.Context, err error, complaint string) error {
	switch {
	case errors.Is(context.Cause(ctx), errEnough):
		return nil
	case ctx.Err() != nil:
		return errdefs.New(errdefs.Deadline, "git: time limit exceeded")
	case err != nil:
		return errdefs.New(errdefs.Precondition, "git: %q", complaint)
	}
	return nil
}

// makeScratch makes the empty repository in which git runs.
func (q *question) makeScratch() (*safefs.Scratch, error) {
	dir, err := safefs.MakeScratch("agentfense-git-")
	if err != nil {
		return nil, err
	}
	config := "[core]\n\trepositoryformatversion = 1\n\tbare = true\n"
	if q.hash == sha256Digits {
		config += "[extensions]\n\tobjectformat = sha256\n"
	}
	files := map[string]string{"HEAD": "ref: refs/heads/none\n", "config": config}
	if len(q.shallow) > 0 {
		files["shallow"] = strings.Join(q.shallow, "\n") + "\n"
	}
	err = os.Mkdir(filepath.Join(dir.Path, "refs"), 0o700)
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir.Path, name), []byte(text), 0o600))
	}
	if err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	return dir, nil
}

// nameMax is the longest path that is reported; no checkout can have a longer one
// (PATH_MAX, linux/limits.h).
const nameMax = 4096

// names reads an answer of names for ask.
func names(do func(string) bool) func(io.Reader) bool {
	return func(out io.Reader) bool { return eachName(out, do) }
}

// eachName calls do for each NUL-terminated name of out, with "" for a name that is too
// long. It reports whether do returned true for all.
func eachName(out io.Reader, do func(string) bool) bool {
	r := bufio.NewReaderSize(out, nameMax+1)
	for {
		name, err := r.ReadSlice(0)
		long := false
		for errors.Is(err, bufio.ErrBufferFull) {
			long = true
			_, err = r.ReadSlice(0)
		}
		name, whole := bytes.CutSuffix(name, []byte{0})
		if long {
			name = nil
		}
		if whole && (long || len(name) > 0) && !do(string(name)) {
			return false
		}
		if err != nil {
			return true
		}
	}
}

// head keeps the beginning of what is written to it.
type head struct{ buf bytes.Buffer }

const headMax = 4096

func (h *head) Write(b []byte) (int, error) {
	h.buf.Write(b[:min(len(b), headMax-h.buf.Len())])
	return len(b), nil
}

func (h *head) line() string {
	line, _, _ := strings.Cut(h.buf.String(), "\n")
	return line
}
