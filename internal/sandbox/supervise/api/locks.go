package api

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/board"
)

// LockRequest asks for locks of paths of the source, all at once.
type LockRequest struct {
	Paths    []string      `json:"paths"` // as vpath.Path.Text returns them
	Advisory bool          `json:"advisory,omitempty"`
	For      time.Duration `json:"for,omitempty"`  // 0: until the sandbox stops
	Wait     time.Duration `json:"wait,omitempty"` // how long to wait for locks of others
	All      bool          `json:"all,omitempty"`  // of an unlock: all that the sandbox has
}

// MaxLockWait bounds LockRequest.Wait.
const MaxLockWait = time.Hour

// Lock locks paths for the sandbox. When it returns, every other sandbox of the source enforces
// that. Errors: Precondition, if another sandbox has a path locked, or waits for it, or if the
// sandbox cannot wait; Denied, for a path that the sandbox may not write; Deadline, after r.Wait;
// Exhausted; Invalid; Unavailable, if another sandbox does not answer, or this one stops.
func (c *Client) Lock(ctx context.Context, r LockRequest) error {
	if r.Wait <= 0 {
		_, err := c.call(ctx, Request{Op: OpLock, Lock: &r})
		return err
	}
	w, err := c.stream(ctx, Request{Op: OpLock, Lock: &r})
	if err != nil {
		return err
	}
	defer w.Close()
	answer, err := w.next(ctx)
	switch {
	case errors.Is(err, io.EOF):
		return errdefs.New(errdefs.Unavailable, "the sandbox has stopped")
	case err == nil && answer.Error != nil:
		return answer.Error.Err()
	}
	return err
}

// Unlock ends locks of the sandbox. Errors: NotFound, for a path that it has not locked.
func (c *Client) Unlock(ctx context.Context, r LockRequest) error {
	_, err := c.call(ctx, Request{Op: OpUnlock, Lock: &r})
	return err
}

// Locks lists the locks of the board, without those of other sandboxes on paths that the policy of
// this one hides.
func (c *Client) Locks(ctx context.Context) ([]board.Entry, error) {
	answer, err := c.call(ctx, Request{Op: OpHeld})
	return answer.Locks, err
}

// Post posts a message for the sandbox and returns its number. Errors: Invalid; Exhausted, if it is
// too long, or after too many.
func (c *Client) Post(ctx context.Context, d board.Draft) (uint64, error) {
	answer, err := c.call(ctx, Request{Op: OpPost, Post: &d})
	return answer.Posted, err
}

// PathTexts are the texts of paths, as messages have them.
func PathTexts(paths []vpath.Path) []string {
	texts := make([]string, len(paths))
	for i, p := range paths {
		texts[i] = p.Text()
	}
	return texts
}
