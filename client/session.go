package client

import (
	"context"
	"io"
	"time"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// Session is a shell in a sandbox that keeps its directory, variables, functions and background
// jobs between commands. It runs one command at a time.
type Session struct {
	ID, Shell string

	c *Client
}

// Session starts a session. Errors: ErrNotRunning; ErrInvalid for a shell that cannot be started.
func (s *Sandbox) Session(ctx context.Context, options ...SessionOption) (*Session, error) {
	o := collect(options)
	request := &sandboxv1.CreateSessionRequest{SandboxId: s.ID, Shell: o.shell, Env: o.env}
	got, err := lasting(ctx, s.c.sandboxes.CreateSession, request, func(ctx context.Context, made *sandboxv1.Session) error {
		return s.c.closeSession(ctx, made.Id)
	})
	if err != nil {
		return nil, s.c.fail(ctx, "create session", err)
	}
	return &Session{got.Id, got.Shell, s.c}, nil
}

// Exec runs a command in the session. Errors: ErrSessionClosed; ErrTimeout, after which the session
// remains.
func (x *Session) Exec(ctx context.Context, command string, options ...SessionRunOption) (*ExecResult, error) {
	got, err := x.c.sandboxes.SessionExec(ctx, x.request(command, collect(options)))
	if err != nil {
		return nil, x.c.fail(ctx, "run", err)
	}
	return resultFrom(got), nil
}

func (x *Session) request(command string, o *settings) *sandboxv1.SessionExecRequest {
	return &sandboxv1.SessionExecRequest{SessionId: x.ID, Command: command, Timeout: span(o.timeout), Detach: o.detach}
}

// ExecStream is Exec that writes the output while the command runs, like Sandbox.ExecStream.
func (x *Session) ExecStream(ctx context.Context, command string, stdout, stderr io.Writer, options ...SessionRunOption) (*ExecResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	started := time.Now()
	stream, err := x.c.sandboxes.SessionExecStream(ctx, x.request(command, collect(options)))
	if err != nil {
		return nil, x.c.fail(ctx, "run", err)
	}
	return x.c.copyOutput(ctx, stream, stdout, stderr, started)
}

// Close ends the shell and all its processes, also if ctx has ended. Errors: ErrNotFound.
func (x *Session) Close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	return x.c.closeSession(ctx, x.ID)
}

func (c *Client) closeSession(ctx context.Context, id string) error {
	_, err := c.sandboxes.DestroySession(ctx, &sandboxv1.DestroySessionRequest{SessionId: id})
	return c.fail(ctx, "close session", err)
}

// SessionInfo describes a session.
type SessionInfo struct {
	ID, SandboxID, Shell string
	Status               SessionStatus
	CreatedAt            time.Time
	ClosedAt             time.Time // zero: not yet
}

func sessionFrom(x *sandboxv1.Session) SessionInfo {
	return SessionInfo{
		ID: x.Id, SandboxID: x.SandboxId, Shell: x.Shell, Status: SessionStatus(word("SESSION_STATUS_", x.Status)),
		CreatedAt: timeFrom(x.CreatedAt), ClosedAt: timeFrom(x.ClosedAt),
	}
}

// Session returns the session with an id. Errors: ErrNotFound.
func (c *Client) Session(ctx context.Context, id string) (*Session, error) {
	x := &Session{ID: id, c: c}
	info, err := x.Info(ctx)
	if err != nil {
		return nil, err
	}
	x.Shell = info.Shell
	return x, nil
}

// Info returns the session's current description. Errors: ErrNotFound.
func (x *Session) Info(ctx context.Context) (SessionInfo, error) {
	got, err := x.c.sandboxes.GetSession(ctx, &sandboxv1.GetSessionRequest{SessionId: x.ID})
	if err != nil {
		return SessionInfo{}, x.c.fail(ctx, "get session", err)
	}
	return sessionFrom(got), nil
}

// Sessions lists the sandbox's sessions.
func (s *Sandbox) Sessions(ctx context.Context) ([]SessionInfo, error) {
	got, err := s.c.sandboxes.ListSessions(ctx, &sandboxv1.ListSessionsRequest{SandboxId: s.ID})
	if err != nil {
		return nil, s.c.fail(ctx, "list sessions", err)
	}
	sessions := make([]SessionInfo, len(got.Sessions))
	for i, x := range got.Sessions {
		sessions[i] = sessionFrom(x)
	}
	return sessions, nil
}
