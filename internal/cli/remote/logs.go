package remote

import (
	"context"
	"errors"
	"io"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/sandbox/outlog"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// Logs calls do with what the detached commands of a sandbox wrote, with follow until
// the last of them has ended. The exit of a record has the code alone.
func (c *Client) Logs(ctx context.Context, id string, follow bool, do func(outlog.Record) error) error {
	ctx, cancel := context.WithCancel(ctx) // ends the stream if do fails
	defer cancel()
	from, err := c.sandboxes.Logs(ctx, &sandboxv1.LogsRequest{SandboxId: id, Follow: follow})
	if err != nil {
		return c.failed(err)
	}
	for {
		r, err := from.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return c.failed(err)
		}
		if err := do(wireconv.DecodeLogRecord(r)); err != nil {
			return err
		}
	}
}
