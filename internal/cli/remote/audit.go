package remote

import (
	"context"
	"errors"
	"io"
	"strings"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

// Audit calls do with each audit record of a sandbox behind the number after,
// with follow also with those to come until ctx ends or the sandbox is gone.
func (c *Client) Audit(ctx context.Context, id string, after uint64, follow bool, do func(audit.Record) error) error {
	ctx, cancel := context.WithCancel(ctx) // ends the stream if do fails
	defer cancel()
	from, err := c.sandboxes.Audit(ctx, &sandboxv1.AuditRequest{SandboxId: id, AfterSeq: after, Follow: follow})
	if err != nil {
		return c.failed(err)
	}
	for {
		event, err := from.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return c.failed(err)
		case event.Record == "":
			return errdefs.New(errdefs.Unsupported, "audit record %d: it is too large for the server to send", event.Seq)
		}
		if err := audit.ReadFrom(strings.NewReader(event.Record+"\n"), do); err != nil {
			return err
		}
	}
}
