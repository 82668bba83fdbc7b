package remote

import (
	"context"
	"errors"
	"io"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/outlog"
)

// streamFrom reads the streams of the wire.
var streamFrom = map[sandboxv1.ExecOutput_OutputType]outlog.Stream{
	sandboxv1.ExecOutput_OUTPUT_TYPE_STDOUT: outlog.Stdout,
	sandboxv1.ExecOutput_OUTPUT_TYPE_STDERR: outlog.Stderr,
}

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
		record := outlog.Record{
			Time: timeOf(r.Time), Exec: r.ExecId, Again: r.Continued, Stream: streamFrom[r.Stream], Data: r.Data, LostBytes: r.LostBytes,
		}
		for _, arg := range r.Argv {
			record.Argv = append(record.Argv, []byte(arg))
		}
		if r.ExitCode != nil {
			record.Exit = &outlog.Exit{Code: int(*r.ExitCode)}
		}
		if err := do(record); err != nil {
			return err
		}
	}
}
