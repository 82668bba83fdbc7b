package bwrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/pidfd"
)

// process is a started sandbox: bubblewrap, which waits for its child, and PID 1.
type process struct {
	id         string // of the sandbox, else a random one
	complaints isolate.Complaints
	monitor    *os.Process
	pid        int
	init       atomic.Pointer[os.File] // pidfd of PID 1; nil until it exists
	killed     atomic.Bool
	stderrDone chan struct{} // closed at the end of standard error
	done       chan struct{}
	err        error // how it ended; set before done is closed
}

func newProcess(id string, stderr io.Writer) *process {
	return &process{id: id, complaints: isolate.Complaints{To: stderr}, done: make(chan struct{})}
}

func (p *process) PID() int              { return p.pid }
func (p *process) Done() <-chan struct{} { return p.done }

func (p *process) Wait() error {
	<-p.done
	return p.err
}

// Kill kills PID 1, and the kernel then kills its pid namespace. It kills bubblewrap only
// if there is no PID 1 yet: otherwise bubblewrap must report the end of its child.
func (p *process) Kill() error {
	p.killed.Store(true)
	var err error
	if init := p.init.Load(); init != nil {
		err = pidfd.Kill(init)
	} else {
		err = p.monitor.Kill()
	}
	if err == nil || errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return errdefs.New(errdefs.Internal, "kill sandbox: %w", err)
}

// launch has what the sandbox's thread needs to start bubblewrap.
type launch struct {
	path  string
	plan  *plan
	guest *os.File
	pipes *pipes
	args  []byte // bubblewrap's options; set after its start
}

// run starts bubblewrap from the calling thread, which is its own, and waits for its end. The
// thread and its mount namespace end with it.
func (p *process) run(l *launch, started chan<- error) {
	cmd, err := l.command()
	if err == nil {
		err = dropAmbient()
	}
	if err == nil {
		err = p.startHere(cmd)
	}
	l.close(cmd)
	started <- err
	if err != nil {
		return
	}
	p.finish(cmd.Wait())
}

// startHere starts bubblewrap. A goroutine copies its standard error, which ends only with
// the last process, after bubblewrap.
func (p *process) startHere(cmd *exec.Cmd) error {
	said, theirs, err := os.Pipe()
	if err != nil {
		return errdefs.New(errdefs.Exhausted, "start bwrap: %w", err)
	}
	defer theirs.Close()
	cmd.Stderr = theirs
	if err := cmd.Start(); err != nil {
		said.Close()
		return errdefs.New(errdefs.Unsupported, "start bwrap: %w", err)
	}
	p.monitor = cmd.Process
	p.stderrDone = make(chan struct{})
	go func() {
		defer close(p.stderrDone)
		defer said.Close()
		_, _ = io.Copy(&p.complaints, said) // Write of complaints never fails
	}()
	return nil
}

// dropAmbient drops this thread's ambient capabilities, which an ordinary user's supervisor
// has and children inherit. Bubblewrap refuses to run with unexpected capabilities.
func dropAmbient() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return errdefs.New(errdefs.Internal, "ambient capabilities: %w", err)
	}
	return nil
}

// finish records how bubblewrap ended, which is how PID 1 ended, unless bubblewrap was
// killed. In that case PID 1 ends too, even if its pidfd is not open yet.
func (p *process) finish(err error) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if init := p.init.Load(); init != nil {
		_ = pidfd.Kill(init)
		_ = pidfd.Wait(ctx, init)
	} else if left := EndLeft(ctx, p.id, 0); left != nil {
		fmt.Fprintln(&p.complaints, left)
	}
	select {
	case <-p.stderrDone:
	case <-ctx.Done():
	}
	if err != nil && !p.killed.Load() {
		if text := tail(&p.complaints); text != "" {
			err = errdefs.New(errdefs.Internal, "sandbox ended: %w: %s", err, text)
		} else {
			err = errdefs.New(errdefs.Internal, "sandbox ended: %w", err)
		}
		p.err = err
	}
	close(p.done)
}

// endTimeout is how long to wait for PID 1 and its standard error after the end of
// bubblewrap. It passes only if a process of the sandbox is stuck in the kernel and cannot
// be killed.
const endTimeout = 5 * time.Second

// Descriptors of bubblewrap, in the order of exec.Cmd.ExtraFiles. The first is for the
// sandbox. Bubblewrap closes the others, except the binary's, which PID 1 closes.
const (
	guestFD = 3 + iota
	blockFD
	infoFD
	seccompFD
	argsFD
	initFD
)

// command prepares the thread's mount namespace and bubblewrap's command line.
func (l *launch) command() (*exec.Cmd, error) {
	stage, err := l.plan.stage()
	if err != nil {
		return nil, err
	}
	files := []*os.File{l.guest, l.pipes.childBlock, l.pipes.childInfo, nil, l.pipes.childArgs, stage.init}
	cmd := exec.CommandContext(context.Background(), l.path, append([]string{"--args", itoa(argsFD), "--", initPath}, l.plan.spec.InitArgs...)...)
	cmd.Env = []string{markOf(l.plan.spec.ID)}
	if within := l.plan.spec.Within; within != "" {
		cmd.Env = append(cmd.Env, markOf(within))
	}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: l.plan.credential()}
	cmd.ExtraFiles = files
	if files[seccompFD-3], err = l.plan.seccompFile(); err != nil {
		return cmd, err
	}
	l.args, err = l.plan.arguments(stage)
	return cmd, err
}

// close closes the files that bubblewrap has inherited. Start closes the guest's socket.
func (l *launch) close(cmd *exec.Cmd) {
	l.pipes.closeTheirs()
	if cmd == nil {
		return
	}
	closeAll(cmd.ExtraFiles[seccompFD-3], cmd.ExtraFiles[initFD-3])
}
