package remote

import (
	"context"
	"io"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/carry"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/vpath"
)

var viewOriginOf = map[sandboxv1.ViewOrigin]sandbox.Origin{
	sandboxv1.ViewOrigin_VIEW_ORIGIN_SOURCE: sandbox.OfSource,
	sandboxv1.ViewOrigin_VIEW_ORIGIN_FROZEN: sandbox.OfFrozen,
	sandboxv1.ViewOrigin_VIEW_ORIGIN_DELTA:  sandbox.OfDelta,
}

// ListView lists a directory of a sandbox's view, or describes a file; with
// itself it describes a directory too.
func (c *Client) ListView(ctx context.Context, id string, path vpath.Path, itself bool) ([]sandbox.ViewEntry, error) {
	var entries []sandbox.ViewEntry
	r := &sandboxv1.ListViewRequest{SandboxId: id, Path: path.Text(), Itself: itself}
	for {
		page, err := c.sandboxes.ListView(ctx, r)
		if err != nil {
			return nil, c.failed(err)
		}
		for _, e := range page.Entries {
			p, err := parsePath(e.Path)
			if err != nil {
				return nil, err
			}
			entries = append(entries, sandbox.ViewEntry{
				Path: p, Permission: permissionOf[e.Permission], Mode: e.Mode, SizeBytes: e.Size,
				ModifiedAt: timeOf(e.ModifiedAt), Origin: viewOriginOf[e.Origin], Target: vpath.DecodeText(e.SymlinkTarget),
			})
		}
		if r.PageToken, err = carry.NextPage(r.PageToken, page.NextPageToken); err != nil || r.PageToken == "" {
			return entries, err
		}
	}
}

// ReadView writes a file of a sandbox's view to w.
func (c *Client) ReadView(ctx context.Context, w io.Writer, id string, path vpath.Path) error {
	return c.written(carry.Content(ctx, w, c.sandboxes.ReadView, &sandboxv1.ReadViewRequest{SandboxId: id, Path: path.Text()}))
}
