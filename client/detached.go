package client

import (
	"context"
	"time"

	"google.golang.org/grpc"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// DetachedExec is a detached command.
type DetachedExec struct {
	ExecID    string
	Argv      []string // or the text of a session's command; cut after 4 KiB
	SessionID string   // "" for a command without a session
	StartedAt time.Time
	// ExitCode is nil while it runs; 128 plus the number of a signal that ended it; 124 at a
	// time-out.
	ExitCode *int
}

// ExecDetached starts a command that keeps running without its client and without the server, and
// returns its id when it runs. Execs lists it, Resume reconnects to it, and the last 256 KiB of
// each of its streams are kept. Errors: ErrNotRunning.
func (s *Sandbox) ExecDetached(ctx context.Context, command string, options ...RunOption) (execID string, err error) {
	o := collect(options)
	o.detach = true
	if o.stdin != nil && !inMemory(o.stdin) {
		return "", failure("detach", "the input must be in memory: use Attach with WithDetach", ErrInvalid)
	}
	request, err := s.request(command, o)
	if err != nil {
		return "", err
	}
	return detached(ctx, s.c, s.c.sandboxes.ExecStream, request)
}

// ExecDetached is Sandbox.ExecDetached for a command of the session.
func (x *Session) ExecDetached(ctx context.Context, command string, options ...SessionRunOption) (execID string, err error) {
	o := collect(options)
	o.detach = true
	return detached(ctx, x.c, x.c.sandboxes.SessionExecStream, x.request(command, o))
}

// detached starts a command and returns its id from the first answer.
func detached[Q any](ctx context.Context, c *Client, call func(context.Context, Q, ...grpc.CallOption) (grpc.ServerStreamingClient[sandboxv1.ExecOutput], error), request Q) (string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := call(ctx, request)
	if err != nil {
		return "", c.fail(ctx, "detach", err)
	}
	answer, err := firstAnswer(workPatience, cancel, stream.Recv) // a session may be running another command
	if err != nil {
		return "", c.fail(ctx, "detach", ended(err))
	}
	return answer.ExecId, nil
}

// Execs lists the detached commands, the oldest first: those that run, and the last ones that have
// ended. Errors: ErrNotRunning.
func (s *Sandbox) Execs(ctx context.Context) ([]DetachedExec, error) {
	got, err := s.c.sandboxes.ListExecs(ctx, &sandboxv1.ListExecsRequest{SandboxId: s.ID})
	if err != nil {
		return nil, s.c.fail(ctx, "list execs", err)
	}
	execs := make([]DetachedExec, len(got.Execs))
	for i, e := range got.Execs {
		execs[i] = DetachedExec{ExecID: e.ExecId, Argv: e.Argv, SessionID: e.SessionId, StartedAt: timeFrom(e.StartedAt)}
		if e.ExitCode != nil {
			execs[i].ExitCode = new(int(*e.ExitCode))
		}
	}
	return execs, nil
}
