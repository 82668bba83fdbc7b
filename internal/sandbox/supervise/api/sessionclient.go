package api

import (
	"context"
	"os"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// SessionOptions say what a session is made of.
type SessionOptions struct {
	ID    string   // "sess_" and 16 hexadecimal digits
	Shell string   // inside; "" = /bin/sh
	Env   []string // complete, KEY=VALUE
	Dir   string   // inside; "" = the workspace
	// IdleTimeout closes the session when no command has run for this long; 0 =
	// never.
	IdleTimeout time.Duration
}

// Session describes a session.
type Session struct {
	ID        string    `json:"id"`
	Shell     string    `json:"shell"`
	CreatedAt time.Time `json:"created_at"`
	ClosedAt  time.Time `json:"closed_at,omitzero"` // zero while it is open
	// Reason says why it is closed, in the audit log's words.
	Reason string `json:"reason,omitempty"`
}

// SessionCommand is what a session's shell is to run.
type SessionCommand struct {
	Text    string        // as the shell reads it, of any number of lines
	Timeout time.Duration // 0 = none
}

// SessionRequest is what a client says of a session, its strings as bytes (see
// wireCommand).
type SessionRequest struct {
	ID      string        `json:"id,omitempty"`
	Shell   []byte        `json:"shell,omitempty"`
	Env     [][]byte      `json:"env,omitempty"`
	Dir     []byte        `json:"dir,omitempty"`
	Idle    time.Duration `json:"idle_ns,omitempty"`
	Text    []byte        `json:"text,omitempty"`
	Timeout time.Duration `json:"timeout_ns,omitempty"`
	// Detached lets the command go on when the client leaves, its output kept.
	Detached bool `json:"detached,omitempty"`
}

// Options are those that the request carries.
func (r SessionRequest) Options() SessionOptions {
	return SessionOptions{ID: r.ID, Shell: string(r.Shell), Env: toStrings(r.Env), Dir: string(r.Dir), IdleTimeout: r.Idle}
}

// OpenSession starts a shell that waits for commands, whatever becomes of this
// client. The supervisor stays as long as a session is open.
// Errors: Exists; Invalid, also for a shell that does not act as one;
// *CommandError when the shell could not be started.
func (c *Client) OpenSession(ctx context.Context, o SessionOptions) (Session, error) {
	answer, err := c.call(ctx, Request{Op: OpOpenSession, Session: &SessionRequest{
		ID: o.ID, Shell: []byte(o.Shell), Env: ToBytes(o.Env), Dir: []byte(o.Dir), Idle: o.IdleTimeout,
	}})
	if err != nil {
		return Session{}, err
	}
	if len(answer.Sessions) != 1 {
		return Session{}, errdefs.New(errdefs.Internal, "supervisor: unexpected answer to %s", OpOpenSession)
	}
	return answer.Sessions[0], nil
}

// Sessions lists the sessions, the oldest first. Closed ones are there until
// somebody closes them, or many others have come.
func (c *Client) Sessions(ctx context.Context) ([]Session, error) {
	answer, err := c.call(ctx, Request{Op: OpSessions})
	return answer.Sessions, err
}

// CloseSession ends a session's shell and all that it started, and forgets the
// session. Errors: NotFound.
func (c *Client) CloseSession(ctx context.Context, id string) error {
	_, err := c.call(ctx, Request{Op: OpCloseSession, Session: &SessionRequest{ID: id}})
	return err
}

// SessionExec runs a command in a session's shell and waits for its end; one
// after another where several ask. stdout and stderr are ends of pipes; the
// caller closes its own descriptors of them, and reads meanwhile. The command's
// input is empty. When ctx ends so does the command, with all its processes; as
// at the time-out, the session stays if the shell can be had back.
//
// Background processes of the command keep its pipes and may write after its
// end.
//
// Errors: NotFound; Precondition when the session is closed; Exhausted, where
// the sandbox has no process left; Canceled.
func (c *Client) SessionExec(ctx context.Context, id string, command SessionCommand, stdout, stderr *os.File) (Exit, error) {
	r := SessionRequest{ID: id, Text: []byte(command.Text), Timeout: command.Timeout}
	answer, err := c.call(ctx, Request{Op: OpSessionExec, Session: &r}, stdout, stderr)
	switch {
	case IsSilent(err) && command.Timeout > 0:
		return Exit{}, errdefs.New(errdefs.Deadline, "the time-out is over: %w", err)
	case err != nil:
		return Exit{}, err
	case answer.Exited == nil:
		return Exit{}, errdefs.New(errdefs.Internal, "supervisor: unexpected answer to %s", OpSessionExec)
	}
	return *answer.Exited, nil
}
