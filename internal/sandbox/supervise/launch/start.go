// Package launch starts the supervisor of a sandbox and removes what a killed one
// left: mounts, processes, control groups and containers.
package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/isolate/bwrap"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/pollfd"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/secrets"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// Verb is the hidden command line verb that runs a supervisor.
const Verb = "__supervise"

// The supervisor's inherited descriptors: the first reports once how the start
// went, the second is its starter's lease. The last has no other use than its number: the kernel
// gives a new process a table of descriptors that has room for it. A process with threads that
// fills its table of 64 waits for all processors until it has a larger one, 10 ms and more
// (expand_fdtable in fs/file.c).
const (
	ReadyFD = 3
	LeaseFD = 4
	TableFD = 255
)

// What a supervisor writes to the lease, once, after its starter has released it.
const (
	Stays = 1 // for another command, or because it was told to keep
	Gone  = 2 // it has let go of everything, and its process ends
)

// supervisorCaps are what the supervisor of an ordinary user holds inside its
// own user namespace, by ambient set because its uid is not 0 there: mounts
// (SYS_ADMIN); files its own user owns but has made unreadable (DAC_OVERRIDE,
// FOWNER); reading /proc/TID/syscall of the confined (SYS_PTRACE).
var supervisorCaps = []uintptr{
	unix.CAP_SYS_ADMIN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_SYS_PTRACE,
}

// networkCaps are what the supervisor needs besides for a network of named hosts: to
// set that up, to have the listeners in it, and to see what the kernel refuses there.
var networkCaps = []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_RAW}

// Lease keeps a supervisor alive while its starter lives.
type Lease struct {
	file       *os.File
	process    *os.Process
	home, name string        // of the sandbox
	ended      chan struct{} // closed when Wait has nothing to wait for
}

// program is what plays the supervisor, and PID 1 inside.
var program = thisProgram

const thisProgram = "/proc/self/exe"

// UseProgram makes path the program that plays the supervisor and PID 1: for a
// process that is not that program itself. It comes before any Start.
func UseProgram(path string) { program = path }

// Start starts the supervisor of the sandbox called name, whose state lives
// below home, and returns when its init runs. The supervisor lives at least
// until the lease is released or this process ends.
// Errors: Precondition if another supervisor holds the sandbox.
func Start(ctx context.Context, home, name string) (*Lease, error) {
	sb, attr, err := prepare(home, name)
	if err != nil {
		return nil, err
	}
	rec := sb.Record()
	environ, err := secrets.Without(os.Environ(), &rec)
	if err != nil {
		return nil, err
	}
	request, err := newScopeRequest(rec)
	if err != nil {
		return nil, err
	}
	defer request.end()
	ready, readyChild, err := os.Pipe()
	if err != nil {
		return nil, errdefs.New(errdefs.Exhausted, "supervisor: %w", err)
	}
	defer ready.Close()
	lease, leaseChild, err := socketpair(unix.SOCK_STREAM)
	if err != nil {
		readyChild.Close()
		return nil, err
	}
	// It outlives ctx, which bounds its start only.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, Verb, home, name)
	cmd.Args[0] = "agentfense"
	cmd.ExtraFiles = []*os.File{readyChild, leaseChild}
	request.addTo(cmd)
	if end := widenTable(cmd); end != nil {
		defer end.Close()
	}
	cmd.Env = environ
	cmd.SysProcAttr = attr
	err = cmd.Start()
	api.CloseAll(readyChild, leaseChild)
	if err != nil {
		lease.Close()
		return nil, explainStart(err)
	}
	stop := context.AfterFunc(ctx, func() { cmd.Process.Kill() })
	request.run(ctx, cmd.Process.Pid)
	err = readReady(ready)
	stop()
	request.end()
	if err != nil {
		lease.Close()
		cmd.Wait()
		if cmd.ProcessState.ExitCode() != SetUpFailed {
			err = errors.Join(err, clearRemainsOf(home, name))
		}
		return nil, err
	}
	return &Lease{file: lease, process: cmd.Process, home: home, name: name, ended: make(chan struct{})}, nil
}

// widenTable has cmd begin with TableFD, and returns what the caller closes. Descriptors between
// the others and this are closed, so that nothing of our caller is kept open. A server keeps the
// program there, and has so many descriptors that each process it starts has a large table: for a
// program of another name it does nothing. Nor does it where few files may be open: starting a
// process takes descriptors above TableFD for a moment.
func widenTable(cmd *exec.Cmd) *os.File {
	var limit unix.Rlimit
	if program != thisProgram || unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur < 2*TableFD {
		return nil
	}
	end, err := os.Open(os.DevNull)
	if err != nil {
		return nil // it takes longer
	}
	first := 3 // after the standard streams
	files := make([]*os.File, TableFD-first+1)
	copy(files, cmd.ExtraFiles)
	files[TableFD-first] = end
	cmd.ExtraFiles = files
	return end
}

// namespaces gives the supervisor a mount namespace of its own, and an
// ordinary user's a user namespace in which it may mount. The user keeps the
// own ids there, so that every owner is shown as it is, and more capabilities than
// supervisorCaps if they are given.
func namespaces(more ...uintptr) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() == 0 {
		return attr
	}
	ownUserNamespace(attr, slices.Concat(supervisorCaps, more))
	return attr
}

// prepare ends what a killed supervisor of the sandbox called name has left, which
// that of an ordinary user cannot, from another user namespace, and returns the
// sandbox and the namespaces of the next.
func prepare(home, name string) (*record.Sandbox, *syscall.SysProcAttr, error) {
	h, err := record.OpenHomeAt(home)
	if err != nil {
		return nil, nil, err
	}
	sb, err := h.Open(name)
	if err != nil {
		return nil, nil, err
	}
	if sb.Supervised() {
		if err := Cleanup(sb); err != nil {
			return nil, nil, err
		}
	}
	attr, err := namespacesOf(sb)
	return sb, attr, err
}

// namespacesOf are those of a sandbox's supervisor. Docker's daemon sees no mount in
// a namespace of the supervisor's own.
func namespacesOf(sb *record.Sandbox) (*syscall.SysProcAttr, error) {
	switch r := sb.Record(); {
	case r.Runtime == record.RuntimeDocker:
	case r.Net == record.NetNamed:
		return namespaces(networkCaps...), nil
	default:
		return namespaces(), nil
	}
	if os.Geteuid() != 0 {
		return nil, errdefs.New(errdefs.Unsupported, "runtime docker: only root can show the docker daemon a view; run agentfense as root, or take --runtime bwrap")
	}
	return &syscall.SysProcAttr{Setsid: true}, nil
}

// ownUserNamespace adds a user namespace in which the user keeps the own ids
// and has caps.
func ownUserNamespace(attr *syscall.SysProcAttr, caps []uintptr) {
	uid, gid := os.Geteuid(), os.Getegid()
	attr.Cloneflags |= syscall.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	attr.AmbientCaps = caps
}

// explainStart names the fix for a host that refuses the namespaces.
func explainStart(err error) error {
	switch {
	case errors.Is(err, unix.EPERM) && os.Geteuid() == 0:
		return errdefs.New(errdefs.Unsupported, "mount namespace: %w: this root has no CAP_SYS_ADMIN (inside a container: grant it, or run as an ordinary user)", err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EUSERS):
		fix := bwrap.New(bwrap.Options{}).Forbidden()
		if fix == "" {
			fix = "this host does not let an ordinary user make one; in a container, its runtime must allow it"
		}
		return errdefs.New(errdefs.Unsupported, "user namespace: %w: %s", err, fix)
	}
	return errdefs.New(errdefs.Internal, "supervisor: %w", err)
}

// readReady waits for the supervisor's one report.
func readReady(r io.Reader) error {
	var answer api.Reply
	err := json.NewDecoder(r).Decode(&answer)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errdefs.New(errdefs.Internal, "supervisor: ended before the sandbox was ready; its log says why")
	case err != nil:
		return errdefs.New(errdefs.Internal, "supervisor: %w", err)
	case answer.Error != nil:
		return answer.Error.Err()
	}
	return nil
}

// Release says that the starter needs the supervisor no longer and returns
// when it has let go of all it owned, or has said that it stays because
// another command runs in it or because it was told to keep. Call it once.
func (l *Lease) Release() error {
	defer l.file.Close()
	if err := unix.Shutdown(int(l.file.Fd()), unix.SHUT_WR); err != nil {
		close(l.ended)
		return errdefs.New(errdefs.Unavailable, "supervisor: %w", err)
	}
	if err := l.awaitAnswer(); err != nil {
		close(l.ended)
		return err
	}
	var b [1]byte
	switch n, _ := l.file.Read(b[:]); {
	case n == 0:
		defer close(l.ended)
		return l.afterDeath()
	case b[0] == Gone:
		go func() {
			defer close(l.ended)
			l.process.Wait() // however it ends, it has nothing more
		}()
	default:
		close(l.ended)
		go l.process.Wait() // a starter that lives on leaves no zombie
	}
	return nil
}

// Wait returns when, after Release, no process of the supervisor is left, or at once if it stays.
// Meanwhile the kernel closes the last of what the process had.
func (l *Lease) Wait() { <-l.ended }

// awaitAnswer returns when there is something to read, or with a *SilentError
// when a signal has stopped the supervisor.
func (l *Lease) awaitAnswer() error {
	for {
		has, err := pollfd.Wait(int(l.file.Fd()), unix.POLLIN, api.FirstLook)
		switch {
		case has != 0:
			return nil
		case err != nil:
			return errdefs.New(errdefs.Internal, "supervisor: %w", err)
		case api.IsStopped(l.process.Pid):
			return errdefs.New(errdefs.Precondition, "%w", &api.SilentError{Sandbox: l.name, PID: l.process.Pid, Stopped: true})
		}
	}
}

func socketpair(kind int) (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, errdefs.New(errdefs.Exhausted, "socketpair: %w", err)
	}
	name := fmt.Sprintf("socketpair-%d", fds[0])
	return os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name), nil
}

// Probe checks that a supervisor's namespaces can be made on this host.
// Errors: Unsupported, with the fix.
func Probe(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, program, "version")
	cmd.Env = os.Environ()
	cmd.SysProcAttr = namespaces()
	if err := cmd.Run(); err != nil {
		return explainStart(err)
	}
	return nil
}

// ProbeVerb is the hidden command line verb that tries a feature, Network or Scratch.
const (
	ProbeVerb = "__probe"
	Network   = "network"
	Scratch   = "scratch"
)

// ProbeFeature checks that a supervisor can give a sandbox a network of named hosts (Network), or
// scratch directories (Scratch), with this state directory. Errors: Unsupported.
func ProbeFeature(ctx context.Context, feature, state string) error {
	cmd := exec.CommandContext(ctx, program, ProbeVerb, feature, state)
	cmd.Args[0] = "agentfense"
	cmd.Env = os.Environ()
	cmd.SysProcAttr = namespaces(networkCaps...)
	var said bytes.Buffer
	cmd.Stderr = &said
	switch err := cmd.Run(); {
	case err == nil:
		return nil
	case cmd.ProcessState == nil:
		return explainStart(err)
	case said.Len() == 0:
		return errdefs.New(errdefs.Unsupported, "%w", err)
	}
	return errdefs.New(errdefs.Unsupported, "%s", said.String())
}

// SetUpFailed is the exit code of a supervisor that has told its starter why
// it did not start, and has taken down what it had built.
const SetUpFailed = 1
