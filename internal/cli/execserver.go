package cli

import (
	"context"
	"io"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/agentfense/agentfense/internal/audit"
	"github.com/agentfense/agentfense/internal/control"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/supervise"
)

// execOnServer is exec and shell: it joins a running sandbox, or starts it for
// the command's time.
func (e *env) execOnServer(ctx context.Context, s control.Server, name string, o execOptions, argv []string) error {
	sb, err := s.Sandbox(ctx, name)
	if err != nil {
		return err
	}
	leave, err := e.enterOnServer(ctx, s, sb)
	if err != nil {
		return err
	}
	c := o.serverCommand(e, sb, argv)
	c.Timeout = o.Timeout
	exit, err := e.attach(ctx, s, c)
	if leaveErr := leave(); err == nil {
		err = leaveErr
	}
	e.sayConflicts(exit)
	e.sayHeld(name, exit)
	if err == nil {
		err = e.explainOnServer(ctx, s, c, exit)
	}
	if err == nil && exit.Code != exitOK {
		return exitError(exit.Code)
	}
	return err
}

// explainOnServer says why a command was killed, if it was the limit of memory.
func (e *env) explainOnServer(ctx context.Context, s control.Server, c control.Command, exit control.Exit) error {
	if exit.Code != exitOutOfMemory {
		return nil
	}
	outOfMemory := false
	err := s.Audit(ctx, c.SandboxID, 0, false, func(r audit.Record) error {
		if v, ok := r.Event.(audit.CommandExecuted); ok && slices.EqualFunc(v.Argv, c.Argv, func(a audit.Text, b string) bool { return string(a) == b }) {
			outOfMemory = v.OOMKilled // of the last such command
		}
		return nil
	})
	if outOfMemory {
		e.explainExit(supervise.Exit{Reason: supervise.ReasonOutOfMemory})
	}
	return err
}

// leaveTimeout bounds the end of a sandbox that we have started.
const leaveTimeout = time.Minute

// enterOnServer starts a sandbox that does not run. leave stops it again, if we
// have started it and nobody else uses it.
func (e *env) enterOnServer(ctx context.Context, s control.Server, sb control.Sandbox) (leave func() error, err error) {
	id := string(sb.Record.ID)
	if sb.Status == control.Running {
		return func() error { return nil }, nil
	}
	if err := s.Start(ctx, id); err != nil {
		if now, findErr := s.Sandbox(ctx, id); findErr == nil && now.Status == control.Running {
			return func() error { return nil }, nil // somebody else was quicker
		}
		return nil, err
	}
	return func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		defer cancel()
		used, err := s.InUse(ctx, id)
		if err == nil && !used {
			err = s.Stop(ctx, id)
		}
		if fault.Is(err, fault.Precondition) || fault.Is(err, fault.NotFound) {
			return nil // somebody else has stopped or removed it
		}
		return err
	}, nil
}

// serverCommand builds what runs inside. Of our environment it gets what run
// gives a command here. It starts where it would here, if the sandbox is of a
// directory that was uploaded.
func (o *commandOptions) serverCommand(e *env, sb control.Sandbox, argv []string) control.Command {
	e.sayUnset(o.Env)
	dir := o.WorkDir
	if home, err := e.openHome(); err == nil && dir == "" {
		if u, err := home.Upload(sb.Record.ID); err == nil { // else nothing is known
			dir = o.workDir(u.Record())
		}
	}
	return control.Command{
		SandboxID: string(sb.Record.ID), Argv: argv, Dir: dir,
		Env: supervise.PassedOn(o.Env, e.getenv),
	}
}

// serverShell is the shell on a server, whose system is not ours.
var serverShell = []string{"/bin/sh", "-c", "command -v bash >/dev/null && exec bash; exec sh"}

// attach runs a command on a server with our own standard streams, as execute
// does here.
func (e *env) attach(ctx context.Context, s control.Server, c control.Command) (control.Exit, error) {
	onTerminal := e.interactive()
	fd := int(e.stdin.Fd())
	if onTerminal {
		c.Rows, c.Columns = 24, 80
		if columns, rows, err := term.GetSize(fd); err == nil && columns > 0 && rows > 0 {
			c.Rows, c.Columns = uint16(rows), uint16(columns)
		}
	}
	running, err := s.Attach(ctx, c)
	if err != nil {
		return control.Exit{}, err
	}
	if onTerminal {
		state, err := term.MakeRaw(fd)
		if err != nil {
			return control.Exit{}, fault.New(fault.Internal, "terminal: %w", err)
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
