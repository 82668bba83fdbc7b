// Package gitcommit makes a commit on a new branch of the user's repository, without its index and
// its work tree.
//
// It runs git's plumbing on the repository: no hook, filter, textconv, merge driver, helper or
// fetch, whatever the configuration says. New objects are made in a directory of their own, and
// reach the repository together when the commit is whole; the branch is made last, and never
// replaces one. Root runs git as the owner of the repository.
package gitcommit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Repository is the repository of a source, with a scratch directory.
type Repository struct {
	git     string // the program
	source  string
	hooks   []string // keys of the configuration that enable a hook
	top     string   // of the work tree
	prefix  string   // of the source below top, with a slash at its end; "" at the top
	scratch *safefs.Scratch
	files   int                 // that Put has made
	objects string              // of the repository
	owner   *syscall.Credential // of the repository, if it is not the caller
	head    string              // the commit; "" if there is none yet
	zero    string              // an object id of zeros
	// identity are the variables of ActFor; contained says that it was called.
	identity  []string
	contained bool
}

// Open finds the repository of the directory source. Close it after. Errors: Precondition if source
// is in no work tree; Unsupported without git.
func Open(ctx context.Context, source string) (r *Repository, err error) {
	r = &Repository{source: source}
	if r.git, err = exec.LookPath("git"); err != nil {
		return nil, errdefs.New(errdefs.Unsupported, "git is not installed")
	}
	if err := r.find(source); err != nil {
		return nil, err
	}
	if err := r.makeScratch(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	if err := r.begin(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// find sets top, prefix and owner.
func (r *Repository) find(source string) error {
	for r.top = source; ; r.top = filepath.Dir(r.top) {
		var st unix.Stat_t
		err := unix.Lstat(filepath.Join(r.top, ".git"), &st)
		if err == nil && st.Mode&unix.S_IFMT != unix.S_IFLNK {
			if err := checkOwner(filepath.Join(r.top, ".git"), source); err != nil {
				return err
			}
			if uid := os.Geteuid(); uid == 0 && st.Uid != 0 {
				r.owner = &syscall.Credential{Uid: st.Uid, Gid: st.Gid}
			}
			break
		}
		if r.top == "/" {
			return errdefs.New(errdefs.Precondition, "the source is in no git repository")
		}
	}
	rel, err := filepath.Rel(r.top, source)
	if err != nil {
		return errdefs.New(errdefs.Internal, "git: %w", err)
	}
	if rel != "." {
		r.prefix = rel + "/"
	}
	return nil
}

// checkOwner refuses a part of a repository that belongs to another user than the caller or, if
// root calls, than root and the owner of the source: that user could have put the repository above
// the source. git checks this itself only where it looks for the repository. Errors: Precondition.
func checkOwner(path, source string) error {
	var st, of unix.Stat_t
	if err := errors.Join(unix.Lstat(path, &st), unix.Lstat(source, &of)); err != nil {
		return hostError(err)
	}
	uid := uint32(os.Geteuid())
	if st.Uid == uid || uid == 0 && st.Uid == of.Uid {
		return nil
	}
	return errdefs.New(errdefs.Precondition, "the repository %s belongs to uid %d: commit to it as that user", vpath.Escape(path), st.Uid)
}

// checkDirs is checkOwner of the directories that .git names.
func (r *Repository) checkDirs(ctx context.Context) error {
	for _, question := range []string{"--git-dir", "--git-common-dir"} {
		dir, err := r.run(ctx, inRepository, nil, "rev-parse", "--path-format=absolute", question)
		if err == nil {
			err = checkOwner(strings.TrimSuffix(dir, "\n"), r.source)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// makeScratch makes the scratch directory: files of ours, and a directory for git.
func (r *Repository) makeScratch() (err error) {
	if r.scratch, err = safefs.MakeScratch("agentfense-commit-"); err != nil {
		return hostError(err)
	}
	for _, dir := range []string{"files", "git", "git/objects"} {
		path := filepath.Join(r.scratch.Path, dir)
		if err := os.Mkdir(path, 0o700); err != nil {
			return hostError(err)
		}
		if r.owner == nil {
			continue
		}
		// The owner's git must read the files, and must not replace what root writes.
		if dir == "files" {
			err = os.Chmod(path, 0o711)
		} else {
			err = os.Chown(path, int(r.owner.Uid), int(r.owner.Gid))
		}
		if err != nil {
			return hostError(err)
		}
	}
	if r.owner != nil {
		err = os.Chmod(r.scratch.Path, 0o711)
	}
	return hostError(err)
}

func hostError(err error) error { return safefs.OwnError("git", err) }

// Close removes the scratch directory.
func (r *Repository) Close() error {
	if r.scratch == nil {
		return nil
	}
	return hostError(r.scratch.Remove())
}

// begin reads where the objects are, and HEAD, and makes an index of it.
func (r *Repository) begin(ctx context.Context) error {
	if err := errors.Join(r.checkDirs(ctx), r.findHooks(ctx)); err != nil {
		return err
	}
	out, err := r.run(ctx, inRepository, nil, "rev-parse", "--git-path", "objects")
	if err != nil {
		return err
	}
	if r.objects = strings.TrimSuffix(out, "\n"); !filepath.IsAbs(r.objects) {
		r.objects = filepath.Join(r.top, r.objects)
	}
	format, err := r.run(ctx, inRepository, nil, "rev-parse", "--show-object-format")
	if err != nil {
		return err
	}
	r.zero = strings.Repeat("0", 40)
	if strings.TrimSpace(format) == "sha256" {
		r.zero = strings.Repeat("0", 64)
	}
	out, err = r.run(ctx, inRepository, nil, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
	if errors.Is(err, errNo) {
		_, err = r.run(ctx, inScratch, nil, "read-tree", "--empty")
		return err
	}
	if err != nil {
		return err
	}
	r.head = strings.TrimSpace(out)
	_, err = r.run(ctx, inScratch, nil, "read-tree", r.head)
	return err
}

// Parent returns the commit HEAD, which gets a commit as its child; "" if there is none yet.
func (r *Repository) Parent() string { return r.head }

// Path returns the path in the repository of a path of the source.
func (r *Repository) Path(p vpath.Path) string { return r.prefix + p.Rel() }

// settings disable everything that could run a program, fetch, or depend on the work tree.
var settings = []string{
	"core.fsmonitor=false", "core.hooksPath=/dev/null", "core.untrackedCache=false", "core.splitIndex=false", "core.commitGraph=false",
	"protocol.allow=never", "credential.helper=", "gc.auto=0", "maintenance.auto=false", "core.pager=cat", "core.editor=false",
	"core.warnAmbiguousRefs=false", "advice.graftFileDeprecated=false", "core.bare=false",
}

// where is what git reads and writes objects in.
type where bool

const (
	inRepository where = false
	inScratch    where = true // the repository's are read, too
)

// passed are the variables of the caller's environment that git gets: the identity, and where its
// configuration is.
var passed = []string{
	"HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "EMAIL", "TZ", "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE",
	"GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "GIT_COMMITTER_DATE",
}

func (r *Repository) environment(w where) []string {
	env := []string{
		"PATH=/usr/bin:/bin", "LC_ALL=C", "GIT_DIR=" + filepath.Join(r.top, ".git"), "GIT_WORK_TREE=" + r.top,
		"GIT_INDEX_FILE=" + filepath.Join(r.scratch.Path, "git/index"), "GIT_CONFIG_NOSYSTEM=1", "GIT_ATTR_NOSYSTEM=1",
		"GIT_NO_LAZY_FETCH=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=",
		"GIT_ASKPASS=/bin/false", "SSH_ASKPASS=/bin/false", "GIT_PAGER=cat", "GIT_EDITOR=false",
	}
	if w == inScratch {
		env = append(env, "GIT_OBJECT_DIRECTORY="+filepath.Join(r.scratch.Path, "git/objects"), "GIT_ALTERNATE_OBJECT_DIRECTORIES="+quoted(r.objects))
	}
	env = append(env, r.identity...)
	for _, name := range passed {
		if r.contained && name != "TZ" {
			continue
		}
		if value, is := os.LookupEnv(name); is && (r.owner == nil || strings.HasPrefix(name, "GIT_AUTHOR") || strings.HasPrefix(name, "GIT_COMMITTER")) {
			env = append(env, name+"="+value)
		}
	}
	switch {
	case r.contained:
		env = append(env, "HOME=/nonexistent")
	case r.owner != nil:
		env = append(env, "HOME="+homeOf(r.owner.Uid))
	}
	for i, hook := range r.hooks {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, hook), fmt.Sprintf("GIT_CONFIG_VALUE_%d=false", i))
	}
	return append(env, fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(r.hooks)))
}

// homeOf returns the home directory of a user, where git's configuration is.
func homeOf(uid uint32) string {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return "/nonexistent"
	}
	return u.HomeDir
}

// quoted writes a path for a list of alternates.
func quoted(path string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(path) + `"`
}

// findHooks finds the hooks that the configuration has, besides those in a directory, so that
// environment disables them. Errors: as run.
func (r *Repository) findHooks(ctx context.Context) error {
	out, err := r.run(ctx, inRepository, nil, "config", "-z", "--name-only", "--get-regexp", `^hook\..*\.`)
	if errors.Is(err, errNo) {
		return nil
	}
	for name := range strings.SplitSeq(out, "\x00") {
		if end := strings.LastIndexByte(name, '.'); end > 0 {
			r.hooks = append(r.hooks, name[:end]+".enabled")
		}
	}
	return err
}

// errNo is a refusal by git without a message: the answer to a question.
var errNo = errors.New("no")

// command returns a run of git with the rights of the repository's owner.
func (r *Repository) command(ctx context.Context, w where, args ...string) *exec.Cmd {
	all := []string{"--no-pager", "--no-replace-objects"}
	for _, s := range settings {
		all = append(all, "-c", s)
	}
	if r.contained {
		for _, s := range containedSettings {
			all = append(all, "-c", s)
		}
	}
	cmd := exec.CommandContext(ctx, r.git, append(all, args...)...)
	cmd.Dir, cmd.Env = r.top, r.environment(w)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: r.owner}
	return cmd
}

// run runs git and returns what it printed. Errors: errNo; Precondition with what git says;
// Canceled.
func (r *Repository) run(ctx context.Context, w where, stdin io.Reader, args ...string) (string, error) {
	cmd := r.command(ctx, w, args...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout = stdin, &out
	err := r.outcome(ctx, cmd, args[0])
	return out.String(), err
}

// outcome runs a command of git. verb names it. Errors: as run.
func (r *Repository) outcome(ctx context.Context, cmd *exec.Cmd, verb string) error {
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	return failed(ctx, cmd.Run(), verb, strings.ReplaceAll(complaint.String(), r.scratch.Path, "the scratch directory"))
}

func failed(ctx context.Context, err error, verb, complaint string) error {
	switch exit, is := errors.AsType[*exec.ExitError](err); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errdefs.New(errdefs.Canceled, "git %s: %w", verb, ctx.Err())
	case is && exit.ExitCode() == 1 && complaint == "":
		return errNo
	case complaint == "":
		return errdefs.New(errdefs.Internal, "git %s: %w", verb, err)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(complaint), "\n")
	return errdefs.New(errdefs.Precondition, "git %s: %s", verb, vpath.Escape(line))
}

// CheckBranch refuses a name of a branch that cannot be made. Errors: Invalid, Exists.
func (r *Repository) CheckBranch(ctx context.Context, name string) error {
	ref := "refs/heads/" + name
	if _, err := r.run(ctx, inRepository, nil, "check-ref-format", ref); err != nil || strings.HasPrefix(name, "-") || name == "HEAD" {
		return errdefs.New(errdefs.Invalid, "branch %s: not a name that git accepts", vpath.Quote(name))
	}
	_, err := r.run(ctx, inRepository, nil, "rev-parse", "--verify", "--quiet", "--end-of-options", ref)
	switch {
	case err == nil:
		return errdefs.New(errdefs.Exists, "branch %s: it exists already; give the name of a new branch", vpath.Quote(name))
	case errors.Is(err, errNo):
		return nil
	}
	return fmt.Errorf("branch %s: %w", vpath.Quote(name), err)
}
