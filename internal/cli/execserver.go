package cli

import (
	"context"
	"io"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// execOnServer is exec and shell: it joins a running sandbox, or starts it for
// the command's time.
func (e *env) execOnServer(ctx context.Context, s backend.Server, name string, o execOptions, argv []string) error {
	sb, err := s.Raw().Sandbox(ctx, name)
	if err != nil {
		return err
	}
	c, err := o.serverCommand(e, sb, argv)
	if err != nil {
		return err
	}
	c.Timeout = o.Timeout
	leave, err := e.enterOnServer(ctx, s, sb)
	if err != nil {
		return err
	}
	exit, err := e.attach(ctx, s, c)
	if leaveErr := leave(); err == nil {
		err = leaveErr
	}
	e.sayConflicts(exit)
	e.sayHeld(name, exit)
	if err == nil {
		e.sayRefusedOnServer(ctx, s, sb, exit)
		err = e.explainOnServer(ctx, s, c, exit)
		e.sayMissingOnServer(sb.Record, c, exit)
	}
	if err == nil && exit.Code != exitOK {
		return exitError(exit.Code)
	}
	return err
}

// sayMissingOnServer says, of a program that was not found there, where it has to
// be: a directory of this host cannot be shown on a server.
func (e *env) sayMissingOnServer(r record.Record, c backend.Command, exit backend.Exit) {
	if exit.Code != api.ExitNotFound || r.Runtime == record.RuntimeDocker || len(c.Argv) == 0 {
		return
	}
	name := "a command was not found"
	if !slices.Contains(shells, path.Base(c.Argv[0])) {
		name = vpath.Escape(c.Argv[0]) + ": not found"
	}
	e.say("%s: a sandbox on a server has the programs below /usr of the server's host and those of its workspace, not yours; for others: --runtime docker --image IMAGE", name)
}

// explainOnServer says why a command was killed, if it was the limit of memory.
func (e *env) explainOnServer(ctx context.Context, s backend.Server, c backend.Command, exit backend.Exit) error {
	if exit.Code != api.ExitOutOfMemory {
		return nil
	}
	outOfMemory := false
	err := s.Raw().Audit(ctx, c.SandboxID, 0, false, func(r audit.Record) error {
		if v, ok := r.Event.(audit.CommandExecuted); ok && slices.EqualFunc(v.Argv, c.Argv, func(a audit.Text, b string) bool { return string(a) == b }) {
			outOfMemory = v.OOMKilled // of the last such command
		}
		return nil
	})
	if outOfMemory {
		e.explainExit(api.Exit{Reason: api.ReasonOutOfMemory})
	}
	return err
}

// leaveTimeout bounds the end of a sandbox that we have started.
const leaveTimeout = time.Minute

// enterOnServer starts a sandbox that does not run. leave stops it again, if we
// have started it and nobody else uses it.
func (e *env) enterOnServer(ctx context.Context, s backend.Server, sb backend.Sandbox) (leave func() error, err error) {
	id := string(sb.Record.ID)
	if sb.Status == record.Running {
		return func() error { return nil }, nil
	}
	if err := s.Raw().Start(ctx, id); err != nil {
		if now, findErr := s.Raw().Sandbox(ctx, id); findErr == nil && now.Status == record.Running {
			return func() error { return nil }, nil // somebody else was quicker
		}
		return nil, err
	}
	return func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		defer cancel()
		used, err := s.Raw().InUse(ctx, id)
		if err == nil && !used {
			err = s.Raw().Stop(ctx, id)
		}
		if errdefs.Is(err, errdefs.Precondition) || errdefs.Is(err, errdefs.NotFound) {
			return nil // somebody else has stopped or removed it
		}
		return err
	}, nil
}

// serverCommand builds what runs inside. Of our environment it gets what run
// gives a command here. It starts where it would here, if the sandbox is of a
// directory that was uploaded. What the server remembers for the sandbox it adds itself.
func (o *commandOptions) serverCommand(e *env, sb backend.Sandbox, argv []string) (backend.Command, error) {
	e.sayUnset(o.Env)
	u, err := e.uploadOf(sb)
	if err != nil {
		return backend.Command{}, err
	}
	var names []string
	dir := o.WorkDir
	if u != nil { // else nothing is known
		if names, err = u.Names(); err != nil {
			return backend.Command{}, err
		}
		if dir == "" {
			dir = o.workDir(u.Record())
		}
	}
	return backend.Command{
		SandboxID: string(sb.Record.ID), Argv: argv, Dir: dir,
		Env: supervise.PassedOn(append(names, o.Env...), e.getenv),
	}, nil
}

// serverShell is the shell on a server, whose system is not ours.
var serverShell = []string{"/bin/sh", "-c", "command -v bash >/dev/null && exec bash; exec sh"}

// attach runs a command on a server with our own standard streams, as execute
// does here.
func (e *env) attach(ctx context.Context, s backend.Server, c backend.Command) (backend.Exit, error) {
	onTerminal := e.interactive()
	fd := int(e.stdin.Fd())
	if onTerminal {
		c.Rows, c.Columns = 24, 80
		if columns, rows, err := term.GetSize(fd); err == nil && columns > 0 && rows > 0 {
			c.Rows, c.Columns = uint16(rows), uint16(columns)
		}
	}
	running, err := s.Raw().Attach(ctx, c)
	if err != nil {
		return backend.Exit{}, err
	}
	if onTerminal {
		state, err := term.MakeRaw(fd)
		if err != nil {
			return backend.Exit{}, errdefs.New(errdefs.Internal, "terminal: %w", err)
		}
		defer term.Restore(fd, state)
		defer followWindow(e.stdin, func(size *unix.Winsize) { running.Resize(size.Row, size.Col) })()
	}
	defer forwardSignals(running.Signal)()
	go func() { // ends with this process
		_, err := io.Copy(running, e.input())
		switch {
		case !onTerminal:
			running.CloseInput()
		case hungUp(err):
			running.Signal(unix.SIGHUP)
		}
	}()
	return running.Wait(e.stdout, e.stderr)
}
