package service

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// Attach runs a command with its streams as they come, or takes one up.
func (c *sandboxServer) Attach(with sandboxv1.SandboxService_AttachServer) error {
	s := c.service
	first, err := with.Recv()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	ctx, cancel := context.WithCancelCause(with.Context())
	defer cancel(nil)
	talk := &conversation{with: with, refuse: cancel}
	var j *job
	switch m := first.GetMessage().(type) {
	case *sandboxv1.AttachRequest_Start_:
		j, err = s.newAttached(ctx, m.Start, talk)
		err = neverStarted(err)
	case *sandboxv1.AttachRequest_Resume_:
		j, err = s.newResumed(ctx, m.Resume, talk)
	default:
		err = errdefs.New(errdefs.Invalid, "start or resume: is required as the first message")
	}
	if err != nil {
		return err
	}
	err = s.stream(ctx, j, with)
	if refused, is := errors.AsType[*errdefs.Error](context.Cause(ctx)); is {
		return refused
	}
	return err
}

// newAttached checks what is asked for.
func (s *Service) newAttached(ctx context.Context, r *sandboxv1.AttachRequest_Start, talk *conversation) (*job, error) {
	sb, err := s.sandbox(ctx, r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	if err := checkArgv(r.GetArgv()); err != nil {
		return nil, err
	}
	command := api.Command{Argv: r.GetArgv(), Detached: r.GetDetach(), Kept: true}
	if command.Dir, err = workDir(sb, r.GetWorkdir()); err != nil {
		return nil, err
	}
	if command.Timeout, err = s.timeout(r.GetTimeout(), s.config.Runtime.MaxTimeout); err != nil {
		return nil, err
	}
	if r.GetTerminal() != nil {
		command.TTY = true
		if command.Rows, command.Columns, err = sizeOf(r.GetTerminal()); err != nil {
			return nil, err
		}
	}
	if err := rememberVariables(sb, r.GetRememberEnv()); err != nil { // all else was checked
		return nil, err
	}
	if command.Env, err = environment(sb, r.GetEnv()); err != nil {
		return nil, err
	}
	j := &job{sandbox: sb, client: api.At(sb.Dir()), timeout: command.Timeout, detach: r.GetDetach(), named: true, gone: notRunning(sb)}
	j.run = talk.run(j, func(ctx context.Context, files ...*os.File) (*api.Running, error) {
		return j.exec(ctx, command, files...)
	})
	return j, nil
}

func checkArgv(argv []string) error {
	if len(argv) == 0 || argv[0] == "" {
		return errdefs.New(errdefs.Invalid, "argv: is required")
	}
	for _, arg := range argv {
		switch {
		case strings.ContainsRune(arg, 0):
			return errdefs.New(errdefs.Invalid, "argv: holds a NUL")
		case len(arg) > maxArgumentBytes:
			return errdefs.New(errdefs.Invalid, "argv: one is longer than the %d bytes that an argument may have", maxArgumentBytes)
		}
	}
	return nil
}

// newResumed checks what is to be taken up. Whoever has started it carries over
// what it changes, wherever we are then.
func (s *Service) newResumed(ctx context.Context, r *sandboxv1.AttachRequest_Resume, talk *conversation) (*job, error) {
	sb, err := s.sandbox(ctx, r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	if err := required("exec_id", r.GetExecId()); err != nil {
		return nil, err
	}
	if r.GetStdoutOffset() < 0 || r.GetStderrOffset() < 0 {
		return nil, errdefs.New(errdefs.Invalid, "stdout_offset, stderr_offset: are not negative")
	}
	client := api.At(sb.Dir())
	execs, err := client.Execs(ctx)
	if errdefs.Is(err, errdefs.NotFound) {
		return nil, notRunning(sb)
	}
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(execs, func(x api.DetachedExec) bool { return x.ID == r.GetExecId() }) {
		return nil, id.NoSuch("exec", r.GetExecId())
	}
	j := &job{sandbox: sb, client: client, named: true, resumed: true, gone: id.NoSuch("exec", r.GetExecId())}
	j.run = talk.run(j, func(ctx context.Context, files ...*os.File) (*api.Running, error) {
		return client.Attach(ctx, r.GetExecId(), [2]int64{r.GetStdoutOffset(), r.GetStderrOffset()}, files...)
	})
	return j, nil
}

func sizeOf(w *sandboxv1.AttachRequest_WindowSize) (rows, columns uint16, err error) {
	if w.GetRows() > math.MaxUint16 || w.GetColumns() > math.MaxUint16 {
		return 0, 0, errdefs.New(errdefs.Invalid, "rows, columns: are at most %d", math.MaxUint16)
	}
	return uint16(w.GetRows()), uint16(w.GetColumns()), nil
}

// conversation is what the client of an Attach call says after its first message.
type conversation struct {
	with   sandboxv1.SandboxService_AttachServer
	refuse context.CancelCauseFunc // ends the call
}

// run is how a job runs that is started by start and hears the client.
func (t *conversation) run(j *job, start func(context.Context, ...*os.File) (*api.Running, error)) func(context.Context, *os.File, *os.File) (api.Exit, error) {
	return func(ctx context.Context, stdout, stderr *os.File) (api.Exit, error) {
		theirs, ours, err := os.Pipe()
		if err != nil {
			return api.Exit{}, errdefs.New(errdefs.Exhausted, "pipe: %w", err)
		}
		defer ours.Close()
		running, err := start(ctx, theirs, stdout, stderr)
		theirs.Close()
		if err != nil {
			return api.Exit{}, err
		}
		j.begins(running.ID, running.LostBytes)
		go t.hear(running, ours)
		return running.Wait(ctx)
	}
}

// hear passes on what the client says until it is through, or gone. What a
// command that has ended is told goes nowhere.
func (t *conversation) hear(running *api.Running, input *os.File) {
	endInput := func() {
		input.Close()
		_ = running.EndInput()
	}
	for {
		r, err := t.with.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				endInput()
			}
			return
		}
		switch m := r.GetMessage().(type) {
		case *sandboxv1.AttachRequest_Stdin:
			_, _ = input.Write(m.Stdin)
		case *sandboxv1.AttachRequest_StdinEnd:
			endInput()
		case *sandboxv1.AttachRequest_Resize:
			var rows, columns uint16
			if rows, columns, err = sizeOf(m.Resize); err == nil {
				_ = running.Resize(rows, columns)
			}
		case *sandboxv1.AttachRequest_Signal:
			if m.Signal < 1 || m.Signal > maxSignal {
				err = errdefs.New(errdefs.Invalid, "signal: unknown value %d (want 1 to 64)", m.Signal)
				break
			}
			_ = running.Signal(unix.Signal(m.Signal))
		default:
			err = errdefs.New(errdefs.Invalid, "message: start and resume are valid only as the first message; want stdin, stdin_end, resize or signal")
		}
		if err != nil {
			t.refuse(err)
			return
		}
	}
}

// maxSignal is the last of signal(7), SIGRTMAX.
const maxSignal = 64
