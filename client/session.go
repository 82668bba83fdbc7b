package client

import (
	"context"
	"io"
	"time"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// Session is a shell in a sandbox that keeps its directory, variables,
// functions and background jobs from one command to the next. One command runs
// at a time.
type Session struct {
	ID, Shell string

	c *Client
}

// Session starts one. Errors: ErrNotRunning; ErrInvalid for a shell that is not
// in the sandbox.
func (s *Sandbox) Session(ctx context.Context, options ...SessionOption) (*Session, error) {
	o := collect(options)
	got, err := s.c.sandboxes.CreateSession(ctx, &sandboxv1.CreateSessionRequest{SandboxId: s.ID, Shell: o.shell, Env: o.env})
	if err != nil {
		return nil, fail(ctx, "create session", err)
	}
	return &Session{got.Id, got.Shell, s.c}, nil
}

// Run runs a command in the session.
// Errors: ErrSessionClosed; ErrTimeout, after which the session goes on.
func (x *Session) Run(ctx context.Context, command string, options ...SessionRunOption) (*Result, error) {
	got, err := x.c.sandboxes.SessionExec(ctx, x.request(command, collect(options)))
	if err != nil {
		return nil, fail(ctx, "run", err)
	}
	return resultFrom(got), nil
}

func (x *Session) request(command string, o *settings) *sandboxv1.SessionExecRequest {
	return &sandboxv1.SessionExecRequest{SessionId: x.ID, Command: command, Timeout: span(o.timeout), Detach: o.detach}
}

// Stream is Run that writes the output as it comes, as Sandbox.Stream does.
func (x *Session) Stream(ctx context.Context, command string, stdout, stderr io.Writer, options ...SessionRunOption) (*Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	started := time.Now()
	stream, err := x.c.sandboxes.SessionExecStream(ctx, x.request(command, collect(options)))
	if err != nil {
		return nil, fail(ctx, "run", err)
	}
	return copyOutput(ctx, stream, stdout, stderr, started)
}

// Close ends the shell and what it started.
func (x *Session) Close(ctx context.Context) error {
	_, err := x.c.sandboxes.DestroySession(ctx, &sandboxv1.DestroySessionRequest{SessionId: x.ID})
	return fail(ctx, "close session", err)
}
