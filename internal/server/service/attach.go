package service

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// Attach runs a command whose streams are those of the call, or resumes one.
func (c *sandboxServer) Attach(with sandboxv1.SandboxService_AttachServer) error {
	s := c.service
	first, err := with.Recv()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	ctx, cancel := context.WithCancelCause(with.Context())
	defer cancel(nil)
	input := &clientInput{from: with, refuse: cancel}
	var j *job
	switch m := first.GetMessage().(type) {
	case *sandboxv1.AttachRequest_Start_:
		j, err = s.newAttached(ctx, m.Start, input)
		err = neverStarted(err)
	case *sandboxv1.AttachRequest_Resume_:
		j, err = s.newResumed(ctx, m.Resume, input)
	default:
		err = errdefs.New(errdefs.Invalid, "first message must be start or resume")
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
func (s *Service) newAttached(ctx context.Context, m *sandboxv1.AttachRequest_Start, input *clientInput) (*job, error) {
	r, err := wireconv.DecodeAttachStart(m)
	if err != nil {
		return nil, err
	}
	sb, err := s.sandbox(ctx, r.Sandbox)
	if err != nil {
		return nil, err
	}
	if err := checkArgv(r.Argv); err != nil {
		return nil, err
	}
	command := api.Command{Argv: r.Argv, Detached: r.Detach, Kept: true}
	if command.Dir, err = workDir(sb, r.Dir); err != nil {
		return nil, err
	}
	if command.Timeout, err = s.timeout(r.Timeout, s.config.Runtime.MaxTimeout); err != nil {
		return nil, err
	}
	if size := r.Terminal; size != nil {
		command.TTY, command.Rows, command.Columns = true, size.Rows, size.Columns
	}
	if err := rememberVariables(sb, r.RememberEnv); err != nil { // all else was checked
		return nil, err
	}
	if command.Env, err = environment(sb, r.Env); err != nil {
		return nil, err
	}
	j := &job{sandbox: sb, client: api.At(sb.Dir()), timeout: command.Timeout, detach: r.Detach, named: true, gone: notRunning(sb)}
	if r.Checkpoint {
		j.checkpoint = r.Argv
	}
	j.run = input.run(j, func(ctx context.Context, files ...*os.File) (*api.Running, error) {
		return j.exec(ctx, command, files...)
	})
	return j, nil
}

func checkArgv(argv []string) error {
	if argv[0] == "" {
		return errdefs.New(errdefs.Invalid, "argv: is required")
	}
	for _, arg := range argv {
		switch {
		case strings.ContainsRune(arg, 0):
			return errdefs.New(errdefs.Invalid, "argv: an argument contains a NUL")
		case len(arg) > maxArgumentBytes:
			return errdefs.New(errdefs.Invalid, "argv: an argument is longer than %d bytes", maxArgumentBytes)
		}
	}
	return nil
}

// newResumed checks which command is to be resumed. Whoever started it also syncs its changes.
func (s *Service) newResumed(ctx context.Context, m *sandboxv1.AttachRequest_Resume, input *clientInput) (*job, error) {
	r, err := wireconv.DecodeAttachResume(m)
	if err != nil {
		return nil, err
	}
	sb, err := s.sandbox(ctx, r.Sandbox)
	if err != nil {
		return nil, err
	}
	client := api.At(sb.Dir())
	execs, err := client.Execs(ctx)
	if errdefs.Is(err, errdefs.NotFound) {
		return nil, notRunning(sb)
	}
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(execs, func(x api.DetachedExec) bool { return x.ID == r.ExecID }) {
		return nil, id.NoSuch("exec", r.ExecID)
	}
	j := &job{sandbox: sb, client: client, named: true, resumed: true, gone: id.NoSuch("exec", r.ExecID)}
	j.run = input.run(j, func(ctx context.Context, files ...*os.File) (*api.Running, error) {
		return client.Attach(ctx, r.ExecID, r.Offsets, files...)
	})
	return j, nil
}

// clientInput is what the client of an Attach call sends after its first message.
type clientInput struct {
	from   sandboxv1.SandboxService_AttachServer
	refuse context.CancelCauseFunc // ends the call
}

// run returns the job.run of a command that start starts and that gets the client's input.
func (in *clientInput) run(j *job, start func(context.Context, ...*os.File) (*api.Running, error)) func(context.Context, *os.File, *os.File) (api.Exit, error) {
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
		go in.forward(running, ours)
		return running.Wait(ctx)
	}
}

// forward passes on what the client sends until it ends its input or disconnects. Input for a
// command that has ended is dropped.
func (in *clientInput) forward(running *api.Running, input *os.File) {
	endInput := func() {
		input.Close()
		_ = running.EndInput()
	}
	for {
		r, err := in.from.Recv()
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
			var size wireconv.WindowSize
			if size, err = wireconv.DecodeWindowSize("resize", m.Resize); err == nil {
				_ = running.Resize(size.Rows, size.Columns)
			}
		case *sandboxv1.AttachRequest_Signal:
			var signal unix.Signal
			if signal, err = wireconv.DecodeSignal(m.Signal); err == nil {
				_ = running.Signal(signal)
			}
		default:
			err = errdefs.New(errdefs.Invalid, "message: only the first message may be start or resume (want stdin, stdin_end, resize or signal)")
		}
		if err != nil {
			in.refuse(err)
			return
		}
	}
}
