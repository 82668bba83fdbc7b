package remote

import (
	"context"
	"io"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/readview"
	"github.com/agentfense/agentfense/internal/server/wireconv"
	"github.com/agentfense/agentfense/internal/transfer/stream"
)

// ListView lists a directory of a sandbox's view, or of the mount that is meant, or describes a
// file; with itself it describes a directory too.
func (c *Client) ListView(ctx context.Context, s backend.Sandbox, path vpath.Path, itself bool) ([]readview.Entry, error) {
	var entries []readview.Entry
	r := &sandboxv1.ListViewRequest{SandboxId: string(s.Record.ID), Mount: s.Mount, Path: path.Text(), Itself: itself}
	for {
		page, err := c.sandboxes.ListView(ctx, r)
		if err != nil {
			return nil, c.failed(err)
		}
		for _, e := range page.Entries {
			entry, err := wireconv.DecodeViewEntry(e)
			if err != nil {
				return nil, err
			}
			entries = append(entries, entry)
		}
		if r.PageToken, err = stream.NextPage(r.PageToken, page.NextPageToken); err != nil || r.PageToken == "" {
			return entries, err
		}
	}
}

// ReadView writes a file of a sandbox's view to w.
func (c *Client) ReadView(ctx context.Context, w io.Writer, s backend.Sandbox, path vpath.Path) error {
	return c.written(stream.Content(ctx, w, c.sandboxes.ReadView, &sandboxv1.ReadViewRequest{SandboxId: string(s.Record.ID), Mount: s.Mount, Path: path.Text()}))
}
