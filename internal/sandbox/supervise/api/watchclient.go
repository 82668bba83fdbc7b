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

// stream is a connection on which the supervisor tells of each change, after its first answer.
type stream struct {
	conn Conn
	stop func() bool
}

// stream opens a stream that lasts until ctx ends. Errors: those of the request.
func (c *Client) stream(ctx context.Context, r Request) (*stream, error) {
	cn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	w := &stream{conn: cn, stop: context.AfterFunc(ctx, func() { cn.Close() })}
	answer, _, err := c.ask(ctx, cn, FirstLook, r)
	if err == nil && answer.Error != nil {
		err = answer.Error.Err()
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// next waits for a change. It is io.EOF once the sandbox has stopped. Errors: Canceled.
func (w *stream) next(ctx context.Context) (answer Reply, err error) {
	_, err = w.conn.Receive(&answer)
	switch {
	case err != nil && errdefs.Is(lost(ctx, err), errdefs.Canceled):
		return answer, lost(ctx, err)
	case err != nil:
		return answer, io.EOF
	}
	return answer, nil
}

// Close ends the watch.
func (w *stream) Close() error {
	w.stop()
	return w.conn.Close()
}

// ViewWatch tells of changes of a view.
type ViewWatch struct{ *stream }

// Watch has the changes at a path and below told from now on, until ctx ends. The path is in a
// mount, "" for the workspace. Errors: NotFound where no supervisor is alive; Unsupported for a
// mount that has no view; Exhausted.
func (c *Client) Watch(ctx context.Context, mount string, path vpath.Path, recursive bool) (ViewWatch, error) {
	w, err := c.stream(ctx, Request{Op: OpWatch, Watch: &WatchRequest{Mount: mount, Path: []byte(path), Recursive: recursive}})
	return ViewWatch{w}, err
}

// Next waits for changes. It is io.EOF once the sandbox has stopped. Errors:
// Canceled.
func (w ViewWatch) Next(ctx context.Context) (Watched, error) {
	answer, err := w.next(ctx)
	switch {
	case err != nil:
		return Watched{}, err
	case answer.Watched == nil:
		return Watched{}, errdefs.New(errdefs.Internal, "supervisor: unexpected answer to %s", OpWatch)
	}
	return *answer.Watched, nil
}
