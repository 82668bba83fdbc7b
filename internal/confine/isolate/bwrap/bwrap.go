// Package bwrap starts sandboxes with bubblewrap, without a setuid helper.
//
// Before bubblewrap starts, a thread of this process with its own mount namespace collects
// everything that the sandbox will see in a small tmpfs (stage.go). So bubblewrap, which
// then runs as a user without rights to the host's directories, can reach it, and the
// sandbox can read no host path. The thread lives as long as the sandbox, because
// --die-with-parent of bubblewrap refers to the thread that started it.
//
// Bubblewrap reads its arguments from a descriptor. No shell is involved, and the host's
// process list shows nothing of the sandbox.
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
	"github.com/agentfense/agentfense/internal/lib/thread"
)

// Options has the settings of an Isolator.
type Options struct {
	// Path is the bwrap binary; empty means the one on the PATH.
	Path string
}

// Isolator is an isolate.Isolator that runs bubblewrap 0.8 or later. It is
// safe for concurrent use.
type Isolator struct {
	path    string
	sysctls string // directory of the kernel's settings: /proc/sys
}

// New returns an Isolator. Only Start and Probe look for bubblewrap.
func New(o Options) *Isolator {
	return &Isolator{path: o.Path, sysctls: "/proc/sys"}
}

// Start implements isolate.Isolator. The caller must have CAP_SYS_ADMIN over its mount
// namespace: it is root, or in a user and mount namespace that it made. Start lowers the
// core limit of the calling process permanently.
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
	thread.Go(func() { p.run(l, started) })
	if err := <-started; err != nil {
		return nil, err
	}
	if err := p.lead(ctx, l); err != nil {
		return nil, b.abandon(p, err)
	}
	return p, nil
}

// lead runs bubblewrap, which waits for its options, until PID 1 runs.
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

// instruct passes bubblewrap its options, waits until PID 1 exists, which bubblewrap
// blocks, opens its pidfd, and releases it.
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

// limitCore sets the core limit of this process, which the sandbox inherits, to one byte.
// That is too small for a dump. It is also the value with which the kernel does not pipe a
// dump to the host's core_pattern program, as it does even with a limit of 0
// (fs/coredump.c). If the limit is 0 and this process may not raise it, it stays 0.
func limitCore() {
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1})
}

// errEarlyEnd is the cause if bubblewrap ended without an error message.
var errEarlyEnd = errors.New("bwrap ended before it made a sandbox")

// abandon ends what was started and returns the error with its cause.
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
