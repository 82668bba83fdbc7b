// Package bwrap starts sandboxes with bubblewrap, as an ordinary program
// without privileges of its own.
//
// Before bubblewrap starts, a thread of ours with a mount namespace to itself
// gathers what the sandbox is to see in a small tmpfs (package comment of
// stage.go), so that bubblewrap, by then a user without any rights to the
// host's directories, can reach it, and so that no path of the host is left in
// what the sandbox can read. That thread lives as long as the sandbox:
// bubblewrap's --die-with-parent is about the thread that started it.
//
// Arguments reach bubblewrap as data in a descriptor. No shell is involved and
// nothing of the sandbox shows in the host's process list.
package bwrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/pidfd"
)

// Options adjusts an Isolator.
type Options struct {
	// Path is the bwrap binary; empty means the one on the PATH.
	Path string
}

// Isolator is an isolate.Isolator that runs bubblewrap 0.8 or later. It is
// safe for concurrent use.
type Isolator struct {
	path    string
	sysctls string // where the kernel's settings are read: /proc/sys
}

// New returns an Isolator. It does not look for bubblewrap; Start and Probe do.
func New(o Options) *Isolator {
	return &Isolator{path: o.Path, sysctls: "/proc/sys"}
}

// Start implements isolate.Isolator. The caller must have CAP_SYS_ADMIN over
// its own mount namespace: be root, or in a user and mount namespace it made.
// Start lowers the core limit of the calling process for good.
func (b *Isolator) Start(ctx context.Context, spec isolate.Spec) (isolate.Process, error) {
	defer spec.Guest.Close()
	path, err := b.find()
	if err != nil {
		return nil, err
	}
	plan, err := newPlan(spec)
	if err != nil {
		return nil, err
	}
	if path, err = plan.reach(path); err != nil {
		return nil, err
	}
	pipes, err := newPipes()
	if err != nil {
		return nil, errdefs.New(errdefs.Exhausted, "start sandbox: %w", err)
	}
	defer pipes.closeOurs()

	limitCore()
	p := newProcess(plan.spec.ID, spec.Stderr)
	started := make(chan error, 1)
	l := &launch{path: path, plan: plan, guest: spec.Guest, pipes: pipes}
	go p.run(l, started)
	if err := <-started; err != nil {
		return nil, err
	}
	if err := p.lead(ctx, l); err != nil {
		return nil, b.abandon(p, err)
	}
	return p, nil
}

// lead takes bubblewrap, which waits for its options, to where PID 1 runs.
func (p *process) lead(ctx context.Context, l *launch) error {
	if place := l.plan.spec.Cgroup; place != nil {
		if err := place(p.monitor.Pid); err != nil {
			return err
		}
	}
	if variable := l.plan.spec.InitEnvOf; variable != nil {
		text, err := variable(p.monitor.Pid)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			return errEarlyEnd
		}
		if err != nil {
			return errdefs.New(errdefs.Internal, "start sandbox: %w", err)
		}
		key, value, _ := strings.Cut(text, "=")
		l.args = append(l.args, "--setenv\x00"+key+"\x00"+value+"\x00"...)
	}
	stop := context.AfterFunc(ctx, func() {
		l.pipes.args.SetWriteDeadline(time.Unix(1, 0))
		l.pipes.info.SetReadDeadline(time.Unix(1, 0))
	})
	defer stop()
	err := p.instruct(l)
	if err != nil && ctx.Err() != nil {
		return contextError(ctx)
	}
	return err
}

// instruct tells bubblewrap its options, waits until PID 1 exists, blocked by
// bubblewrap, takes hold of it, and lets it go.
func (p *process) instruct(l *launch) error {
	if _, err := l.pipes.args.Write(l.args); err != nil {
		return errEarlyEnd
	}
	if err := l.pipes.args.Close(); err != nil {
		return errdefs.New(errdefs.Internal, "start sandbox: %w", err)
	}
	var report struct {
		PID int `json:"child-pid"`
	}
	if err := json.NewDecoder(io.LimitReader(l.pipes.info, 4096)).Decode(&report); err != nil {
		return errEarlyEnd
	}
	init, err := pidfd.Open(report.PID)
	if err != nil {
		return errdefs.New(errdefs.Unsupported, "pidfd of the sandbox: %w", err)
	}
	p.pid = report.PID
	p.init.Store(init)
	if _, err := l.pipes.release.Write([]byte{1}); err != nil {
		return errdefs.New(errdefs.Internal, "start sandbox: %w", err)
	}
	return nil
}

// limitCore sets the core limit of this process, which the sandbox inherits, to
// one byte: too little for a dump, and the value (fs/coredump.c) that keeps the
// kernel from piping one to the host's core_pattern program, as it does even
// with a limit of 0. Where the limit is 0 already and we may not raise it, it
// stays.
func limitCore() {
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1})
}

// errEarlyEnd stands for bubblewrap's own complaint.
var errEarlyEnd = errors.New("bwrap ended before it made a sandbox")

// abandon ends what was started and says why it came to nothing.
func (b *Isolator) abandon(p *process, cause error) error {
	p.Kill()
	<-p.done
	if errors.Is(cause, errEarlyEnd) {
		return b.explain(tail(&p.complaints))
	}
	return cause
}

// find returns the path of the bwrap binary.
func (b *Isolator) find() (string, error) {
	name := b.path
	if name == "" {
		name = "bwrap"
	}
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return "", errdefs.New(errdefs.Unsupported, "bubblewrap is not installed: %s", installHint)
	}
	if err != nil {
		return "", errdefs.New(errdefs.Unsupported, "find bubblewrap: %w", err)
	}
	return path, nil
}

func contextError(ctx context.Context) error {
	kind := errdefs.Canceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		kind = errdefs.Deadline
	}
	return errdefs.New(kind, "start sandbox: %w", fmt.Errorf("gave up waiting for bwrap: %w", ctx.Err()))
}
