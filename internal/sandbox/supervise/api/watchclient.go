package api

import (
	"context"
	"io"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// WatchRequest asks for the changes at a path and below.
type WatchRequest struct {
	Mount     string `json:"mount,omitempty"` // in which Path is; empty: the workspace
	Path      []byte `json:"path"`
	Recursive bool   `json:"recursive,omitempty"` // not only what is in it directly
}

// Watched is what has changed since the message before, by path. With Lost more
// had changed before than could be kept.
type Watched struct {
	Changes []Changed `json:"changes,omitempty"`
	Lost    bool      `json:"lost,omitempty"`
}

// ViewWatch tells of changes of a view.
type ViewWatch struct {
	conn Conn
	stop func() bool
}

// Watch has the changes at a path and below told from now on, until ctx ends. The path is in a
// mount, "" for the workspace. Errors: NotFound where no supervisor is alive; Unsupported for a
// mount that has no view; Exhausted.
func (c *Client) Watch(ctx context.Context, mount string, path vpath.Path, recursive bool) (*ViewWatch, error) {
	cn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	w := &ViewWatch{conn: cn, stop: context.AfterFunc(ctx, func() { cn.Close() })}
	answer, _, err := c.ask(ctx, cn, FirstLook, Request{Op: OpWatch, Watch: &WatchRequest{Mount: mount, Path: []byte(path), Recursive: recursive}})
	if err == nil && answer.Error != nil {
		err = answer.Error.Err()
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Next waits for changes. It is io.EOF once the sandbox has stopped. Errors:
// Canceled.
func (w *ViewWatch) Next(ctx context.Context) (Watched, error) {
	var answer Reply
	_, err := w.conn.Receive(&answer)
	switch {
	case err != nil && errdefs.Is(lost(ctx, err), errdefs.Canceled):
		return Watched{}, lost(ctx, err)
	case err != nil:
		return Watched{}, io.EOF
	case answer.Watched == nil:
		return Watched{}, errdefs.New(errdefs.Internal, "supervisor: unexpected answer to %s", OpWatch)
	}
	return *answer.Watched, nil
}

// Close ends the watch.
func (w *ViewWatch) Close() error {
	w.stop()
	return w.conn.Close()
}
