package docker

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/pidfd"
	"github.com/agentfense/agentfense/internal/lib/pollfd"
)

// process is a started sandbox.
type process struct {
	api        *api
	id, dir    string // of the sandbox
	container  string // the daemon's id of the container
	complaints isolate.Complaints
	pid        int
	init       *os.File // pidfd of PID 1
	killed     atomic.Bool
	done       chan struct{}
	err        error // how it ended; set before done is closed
}

func (p *process) PID() int              { return p.pid }
func (p *process) Done() <-chan struct{} { return p.done }

func (p *process) Wait() error {
	<-p.done
	return p.err
}

// Kill kills PID 1, and the kernel then kills its pid namespace. It does not use the
// daemon, which may hang.
func (p *process) Kill() error {
	p.killed.Store(true)
	if err := pidfd.Kill(p.init); err != nil {
		return errdefs.New(errdefs.Internal, "kill sandbox: %w", err)
	}
	return nil
}

// run reads the standard error of PID 1, waits for its end, and removes the container and
// its mounts.
func (p *process) run(stderr *os.File) {
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(&p.complaints, stderr) // it ends with the last writer
	}()
	p.awaitEnd()
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	status, err := p.api.wait(ctx, p.container)
	err = errors.Join(err, clear(ctx, p.api, p.id, p.dir))
	stderr.Close()
	<-copied
	p.init.Close()
	p.api.close()
	switch text := p.complaints.Tail(); {
	case p.killed.Load():
	case status != 0 && text != "":
		p.err = errdefs.New(errdefs.Internal, "sandbox ended: exit status %d: %s", status, text)
	case status != 0:
		p.err = errdefs.New(errdefs.Internal, "sandbox ended: exit status %d", status)
	case err != nil:
		p.err = errdefs.New(errdefs.Internal, "sandbox ended: %w", err)
	}
	close(p.done)
}

// awaitEnd waits until every process of the sandbox is gone: PID 1 is the last.
func (p *process) awaitEnd() {
	raw, err := p.init.SyscallConn()
	if err != nil {
		return
	}
	// A pidfd is readable after the process has ended, so no thread waits.
	_ = raw.Read(func(fd uintptr) bool {
		has, err := pollfd.Wait(int(fd), unix.POLLIN, 0)
		return has != 0 || err != nil
	})
}

// abandon removes the parts of a sandbox that does not start.
func (p *process) abandon() error {
	// The context of the start may have ended.
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	defer p.api.close()
	if p.init != nil {
		p.init.Close()
	}
	return clear(ctx, p.api, p.id, p.dir)
}
