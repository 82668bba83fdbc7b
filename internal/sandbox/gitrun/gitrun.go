// Package gitrun runs git in new repositories of ours, in a scratch directory. Git reads the
// objects of other repositories there, by descriptor, and nothing else of them: no configuration,
// hook, attribute, graft or replacement. It fetches nothing, its memory is bounded, and it never
// runs for root on what belongs to another user: root runs it as the owner.
//
// A scratch directory that a killed process has left is removed when the next one is made.
package gitrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// memoryMax is the limit of git's address space: objects may unpack to any size.
const memoryMax = 4 << 30

// scratchPrefix begins the names of scratch directories.
const scratchPrefix = "agentfense-clean-"

// killTimeout is how long a killed git may keep its pipes open.
const killTimeout = time.Second

// SHA256Digits are the digits of an object id of a repository with SHA-256.
const SHA256Digits = 64

// HeadRef is the ref that HEAD of the new repositories names.
const HeadRef = "refs/heads/source"

// settings disable what could run a program, fetch, or use files of another repository than the
// objects, and bound the memory.
var settings = []string{
	"core.fsmonitor=false", "core.hooksPath=/dev/null", "core.attributesFile=/dev/null", "core.commitGraph=false", "core.quotePath=true",
	"core.multiPackIndex=false", "core.packedGitWindowSize=32m", "core.packedGitLimit=256m", "core.warnAmbiguousRefs=false",
	"pack.threads=2", "pack.windowMemory=256m", "pack.writeBitmaps=false", "fastimport.unpackLimit=0", "fsck.skipList=",
	"protocol.allow=never", "credential.helper=", "gc.auto=0", "maintenance.auto=false",
	"advice.graftFileDeprecated=false",
}

// Git runs git in a directory of ours.
type Git struct {
	program string
	scratch *safefs.Scratch
	others  map[string][]*os.File // of a repository: object directories that it reads, too
	owner   *syscall.Credential   // of the source, if root runs git; else nil
}

// New makes the scratch directory. Close removes it. Errors: Unsupported without a git.
func New(owner *syscall.Credential) (*Git, error) {
	program, err := exec.LookPath("git")
	if err != nil {
		return nil, errdefs.New(errdefs.Unsupported, "git is not installed")
	}
	var users []uint32
	if owner != nil {
		users = append(users, owner.Uid)
	}
	scratch, err := safefs.MakeScratch(scratchPrefix, users...)
	if err != nil {
		return nil, hostError(err)
	}
	return &Git{program: program, scratch: scratch, others: map[string][]*os.File{}, owner: owner}, nil
}

// Close removes the scratch directory.
func (g *Git) Close() error { return hostError(g.scratch.Remove()) }

// MakeRepository makes an empty repository, whose objects have ids like id, with some files.
func (g *Git) MakeRepository(name, id string, files map[string]string, others ...*os.File) error {
	dir := filepath.Join(g.scratch.Path, name)
	g.others[name] = others
	all := map[string]string{"HEAD": "ref: " + HeadRef + "\n", "config": FormatConfig(id, "true")}
	maps.Copy(all, files)
	var err error
	for _, sub := range []string{"refs/heads", "objects/pack", "objects/info"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(dir, sub), 0o700))
	}
	for name, text := range all {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return hostError(err)
}

// FormatConfig is the part of a configuration that says how a repository is stored.
func FormatConfig(id, bare string) string {
	if len(id) == SHA256Digits {
		return "[core]\n\trepositoryformatversion = 1\n\tbare = " + bare + "\n[extensions]\n\tobjectformat = sha256\n"
	}
	return "[core]\n\trepositoryformatversion = 0\n\tbare = " + bare + "\n"
}

// Give gives the directory to the owner of the source, who runs git. It comes after what it
// contains: until then the owner cannot reach that, and so cannot replace it meanwhile.
func (g *Git) Give() error {
	if g.owner == nil {
		return nil
	}
	root, err := os.OpenRoot(g.scratch.Path)
	if err != nil {
		return hostError(err)
	}
	defer root.Close()
	var paths []string
	err = fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		paths = append(paths, path)
		return err
	})
	for _, path := range slices.Backward(paths) {
		err = errors.Join(err, root.Lchown(path, int(g.owner.Uid), int(g.owner.Gid)))
	}
	return hostError(err)
}

// Command returns a run of git in the repository name.
func (g *Git) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	all := []string{"--no-pager", "--no-replace-objects"}
	for _, s := range settings {
		all = append(all, "-c", s)
	}
	cmd := exec.CommandContext(ctx, g.program, append(all, args...)...)
	home := g.scratch.Path
	cmd.Dir = home
	cmd.Env = []string{
		"PATH=/usr/bin:/bin", "LC_ALL=C", "HOME=" + home, "XDG_CONFIG_HOME=" + home, "GIT_DIR=" + filepath.Join(home, name),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1", "GIT_GRAFT_FILE=/dev/null",
		"GIT_NO_LAZY_FETCH=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0",
		"GIT_ALLOW_PROTOCOL=", "GIT_PAGER=cat", "GIT_EDITOR=false", "GIT_ASKPASS=/bin/false", "SSH_ASKPASS=/bin/false",
	}
	var others []string
	for i := range g.others[name] {
		others = append(others, Inherited(i))
	}
	cmd.ExtraFiles = g.others[name]
	cmd.Env = append(cmd.Env, "GIT_ALTERNATE_OBJECT_DIRECTORIES="+strings.Join(others, ":"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: g.owner}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = killTimeout
	return cmd
}

// Inherited returns the path of the child's extra file i, in the child.
func Inherited(i int) string { return fmt.Sprintf("/proc/self/fd/%d", 3+i) }

// Process is a run of git that goes on.
type Process struct {
	cmd       *exec.Cmd
	In        io.WriteCloser
	Out       io.ReadCloser
	complaint bytes.Buffer
}

// Start starts git with pipes. End or Kill must be called.
func (g *Git) Start(ctx context.Context, name string, args ...string) (*Process, error) {
	p := &Process{cmd: g.Command(ctx, name, args...)}
	var err error
	if p.In, err = p.cmd.StdinPipe(); err == nil {
		p.Out, err = p.cmd.StdoutPipe()
	}
	p.cmd.Stderr = &limitedWriter{&p.complaint}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "git: %w", err)
	}
	limitMemory(p.cmd)
	return p, nil
}

func limitMemory(cmd *exec.Cmd) {
	limit := unix.Rlimit{Cur: memoryMax, Max: memoryMax}
	_ = unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_AS, &limit, nil) // it may have ended
}

// End waits for the process, which must have read and written everything.
func (p *Process) End(ctx context.Context) error {
	_ = p.In.Close()
	return failedIn(ctx, p.cmd, &p.complaint)
}

// Kill ends the process after another error.
func (p *Process) Kill() {
	_ = p.cmd.Cancel()
	_ = p.In.Close()
	_ = p.cmd.Wait()
}

// Run runs git and returns what it printed.
func (g *Git) Run(ctx context.Context, name string, stdin io.Reader, args ...string) (string, error) {
	var out bytes.Buffer
	err := g.Pipe(ctx, name, stdin, &out, args...)
	return out.String(), err
}

// Pipe runs git and writes what it prints to out.
func (g *Git) Pipe(ctx context.Context, name string, stdin io.Reader, out io.Writer, args ...string) error {
	cmd := g.Command(ctx, name, args...)
	var complaint bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, out, &limitedWriter{&complaint}
	if err := cmd.Start(); err != nil {
		return errdefs.New(errdefs.Internal, "git: %w", err)
	}
	limitMemory(cmd)
	return failedIn(ctx, cmd, &complaint)
}

// failedIn waits for a run and explains how it ended. The scratch directory is not named: its path
// is of the host.
func failedIn(ctx context.Context, cmd *exec.Cmd, complaint *bytes.Buffer) error {
	err := cmd.Wait()
	return Failed(ctx, err, cmd.Args, withoutScratch(cmd, complaint))
}

// withoutScratch is what a run complained about, with paths relative to the scratch directory.
func withoutScratch(cmd *exec.Cmd, complaint *bytes.Buffer) string {
	return strings.ReplaceAll(complaint.String(), cmd.Dir+"/", "")
}

// Failed explains how a run ended. The source decides what git complains about.
func Failed(ctx context.Context, err error, args []string, complaint string) error {
	verb := args[3+2*len(settings)]
	line, _, _ := strings.Cut(strings.TrimSpace(complaint), "\n")
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errdefs.New(errdefs.Deadline, "git %s: time limit exceeded", verb)
	case ctx.Err() != nil:
		return errdefs.New(errdefs.Canceled, "git %s: %w", verb, ctx.Err())
	case line == "":
		return errdefs.New(errdefs.Precondition, "git %s: %w", verb, err)
	}
	return errdefs.New(errdefs.Precondition, "git %s: %s", verb, vpath.Escape(line))
}

// complaintMax is how much is kept of what git complains.
const complaintMax = 4096

type limitedWriter struct{ to *bytes.Buffer }

func (w *limitedWriter) Write(b []byte) (int, error) {
	w.to.Write(b[:min(len(b), complaintMax-w.to.Len())])
	return len(b), nil
}

func hostError(err error) error { return safefs.OwnError("git", err) }

// Complaint is the first line of what the process complained about, after its end.
func (p *Process) Complaint() string {
	line, _, _ := strings.Cut(strings.TrimSpace(withoutScratch(p.cmd, &p.complaint)), "\n")
	return vpath.Escape(line)
}

// Path is the scratch directory.
func (g *Git) Path() string { return g.scratch.Path }
