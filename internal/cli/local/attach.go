package local

import (
	"context"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// localAttached is a command with fresh pipes, or a terminal of its own. No descriptor
// of the caller's enters the sandbox: one of a file could be reopened through
// /proc/self/fd with wider rights.
type localAttached struct {
	ctx     context.Context //nolint:containedctx // of the command
	running *api.Running
	input   *os.File
	outputs []*os.File // standard output and standard error, or the terminal
}

// Attach starts a command.
func (l *localLive) Attach(ctx context.Context, c backend.Command) (backend.Attached, error) {
	command, err := l.command(c)
	if err != nil {
		return nil, err
	}
	if command.TTY {
		running, err := l.client.Exec(ctx, command)
		if err != nil {
			return nil, notStarted(err)
		}
		return &localAttached{ctx, running, running.Terminal, []*os.File{running.Terminal}}, nil
	}
	inside, outside, err := pipes()
	if err != nil {
		return nil, err
	}
	running, err := l.client.Exec(ctx, command, inside...)
	api.CloseAll(inside...)
	if err != nil {
		api.CloseAll(outside...)
		return nil, notStarted(err)
	}
	return &localAttached{ctx, running, outside[0], outside[1:]}, nil
}

// pipes makes the three pipes of a command.
func pipes() (inside, outside []*os.File, err error) {
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			api.CloseAll(append(inside, outside...)...)
			return nil, nil, errdefs.New(errdefs.Exhausted, "pipe: %w", err)
		}
		if i == 0 {
			r, w = w, r
		}
		inside, outside = append(inside, w), append(outside, r)
	}
	return inside, outside, nil
}

// Write writes to the command's standard input.
func (a *localAttached) Write(data []byte) (int, error) { return a.input.Write(data) }

// ReadFrom is Write of all that r has, by the kernel where it can.
func (a *localAttached) ReadFrom(r io.Reader) (int64, error) { return a.input.ReadFrom(r) }

// CloseInput ends the command's standard input.
func (a *localAttached) CloseInput() { a.input.Close() }

// Resize tells the command's terminal its new size.
func (a *localAttached) Resize(rows, columns uint16) {
	_ = unix.IoctlSetWinsize(int(a.input.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}) // the next change tells it again
}

// Signal sends the command a signal. One that has ended needs none.
func (a *localAttached) Signal(s syscall.Signal) { _ = a.running.Signal(s) }

// Wait copies the output until the command has ended.
func (a *localAttached) Wait(stdout, stderr io.Writer) (backend.Exit, error) {
	defer api.CloseAll(a.input)
	defer api.CloseAll(a.outputs...)
	var copies []*api.Output
	for i, to := range []io.Writer{stdout, stderr}[:len(a.outputs)] {
		copies = append(copies, api.CopyOutput(to, a.outputs[i]))
	}
	exit, err := a.running.Wait(a.ctx)
	for _, c := range copies {
		c.Finish()
	}
	return exitOf(exit), err
}

func exitOf(exit api.Exit) backend.Exit {
	e := backend.Exit{Code: exit.ExitCode(), Reason: exit.Reason}
	for _, d := range exit.Denied {
		e.Refused = append(e.Refused, audit.PermissionDenied{
			Mount: d.Mount, Path: audit.Path("/" + vpath.DecodeText(d.Path)), Operation: d.Operation, Permission: d.Permission.String(),
			Rule: audit.Text(vpath.DecodeText(d.Rule)), RuleIndex: d.RuleIndex, Count: int(d.Count),
			RuleSource: audit.Text(vpath.DecodeText(d.Lock)),
		})
	}
	for _, c := range exit.Changed {
		e.Touched = append(e.Touched, vpath.Path("/"+vpath.DecodeText(c.Path)))
	}
	return e
}
