package bwrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/pidfd"
)

// process is a started sandbox: bubblewrap, which waits, and PID 1 below it.
type process struct {
	id         string // of the sandbox, or of this start
	complaints isolate.Complaints
	monitor    *os.Process
	pid        int
	init       atomic.Pointer[os.File] // pidfd of PID 1; nil until it exists
	killed     atomic.Bool
	heard      chan struct{} // closed when nobody complains any more
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

// Kill kills PID 1, with which its pid namespace dies. Bubblewrap is killed
// only where it has not come so far: it must live to see its child end.
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

// launch is what the sandbox's thread needs to start bubblewrap.
type launch struct {
	path  string
	plan  *plan
	guest *os.File
	pipes *pipes
	args  []byte // bubblewrap's options; set once it was started
}

// run starts bubblewrap from a thread of its own and stays on it until the end.
// The goroutine never unlocks: the thread, with its mount namespace, ends with
// it.
func (p *process) run(l *launch, started chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		// The main thread would not end with its goroutine but be parked for
		// ever, and its mount namespace with it. While we hold it, another
		// goroutine gets another thread.
		moved := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(moved)
			p.runHere(l, started)
		}()
		<-moved
		runtime.UnlockOSThread()
		return
	}
	p.runHere(l, started)
}

// runHere is run on the thread it is called on, which is locked.
func (p *process) runHere(l *launch, started chan<- error) {
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

// startHere starts bubblewrap, whose standard error is copied apart: its end comes
// only with that of all processes, which bubblewrap's own does not wait for.
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
	p.heard = make(chan struct{})
	go func() {
		defer close(p.heard)
		defer said.Close()
		_, _ = io.Copy(&p.complaints, said) // the complaints take everything
	}()
	return nil
}

// dropAmbient keeps what this thread starts from inheriting our capabilities
// (an ordinary user's supervisor has them as ambient ones): bubblewrap refuses
// to run with any it did not expect.
func dropAmbient() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return errdefs.New(errdefs.Internal, "ambient capabilities: %w", err)
	}
	return nil
}

// finish records how bubblewrap ended, which is how PID 1 ended, unless
// somebody killed bubblewrap: then PID 1 goes too, also one that we do not know
// yet.
func (p *process) finish(err error) {
	ctx, cancel := context.WithTimeout(context.Background(), endDelay)
	defer cancel()
	if init := p.init.Load(); init != nil {
		_ = pidfd.Kill(init)
		_ = pidfd.Wait(ctx, init)
	} else if left := EndLeft(ctx, p.id, 0); left != nil {
		fmt.Fprintln(&p.complaints, left)
	}
	select {
	case <-p.heard:
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

// endDelay bounds the wait for PID 1 and its standard error once bubblewrap is
// gone. It is reached only if a process of the sandbox cannot be killed, being
// stuck in the kernel.
const endDelay = 5 * time.Second

// Descriptors of bubblewrap, in the order of exec.Cmd.ExtraFiles. The first is
// the sandbox's; it closes the others, and PID 1 closes the binary's.
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
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: l.plan.credential()}
	cmd.ExtraFiles = files
	if files[seccompFD-3], err = l.plan.seccompFile(); err != nil {
		return cmd, err
	}
	l.args, err = l.plan.arguments(stage)
	return cmd, err
}

// close closes what bubblewrap has inherited; the guest's socket is Start's.
func (l *launch) close(cmd *exec.Cmd) {
	l.pipes.closeTheirs()
	if cmd == nil {
		return
	}
	closeAll(cmd.ExtraFiles[seccompFD-3], cmd.ExtraFiles[initFD-3])
}
