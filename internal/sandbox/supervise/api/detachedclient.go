package api

import (
	"context"
	"os"
	"time"
)

// windowSize is a terminal's.
type windowSize struct {
	Rows    uint16 `json:"rows"`
	Columns uint16 `json:"columns"`
}

// AttachRequest asks for a detached command's streams.
type AttachRequest struct {
	ID   string   `json:"id"`
	From [2]int64 `json:"from"` // bytes of output and errors that the client has
}

// Execs lists the detached commands that are kept, the oldest first: those that
// run, and the last that have ended.
func (c *Client) Execs(ctx context.Context) ([]DetachedExec, error) {
	answer, err := c.call(ctx, Request{Op: OpExecs})
	return answer.Execs, err
}

// Attach attaches to a command that was started with Kept, from after the bytes
// of output and errors that the caller has already. files are as for Exec; without
// any the caller only waits. Leaving does not end the command.
// Errors: NotFound, where no such command is kept.
func (c *Client) Attach(ctx context.Context, id string, from [2]int64, files ...*os.File) (*Running, error) {
	return c.start(ctx, Request{Op: OpAttach, Attach: &AttachRequest{ID: id, From: from}}, files)
}

// SessionStart is SessionExec for a command that goes on without its client; its
// output is kept.
func (c *Client) SessionStart(ctx context.Context, id string, command SessionCommand, files ...*os.File) (*Running, error) {
	r := SessionRequest{ID: id, Text: []byte(command.Text), Timeout: command.Timeout, Detached: true}
	return c.start(ctx, Request{Op: OpSessionExec, Session: &r}, files)
}

// Resize sets the size of a detached command's terminal.
func (r *Running) Resize(rows, columns uint16) error {
	return r.tell(Request{Op: OpResize, Size: &windowSize{Rows: rows, Columns: columns}})
}

// EndInput says that no input comes any more, once the caller's end of the pipe
// is closed: the detached command reads an end of file.
func (r *Running) EndInput() error { return r.tell(Request{Op: OpEndInput}) }

// DetachedExec is a detached command that is kept.
type DetachedExec struct {
	ID        string    `json:"id"` // unique while the sandbox runs
	Session   string    `json:"session,omitempty"`
	Argv      [][]byte  `json:"argv"`
	StartedAt time.Time `json:"started_at"`
	Exit      *Exit     `json:"exit,omitempty"` // nil while it runs
}
