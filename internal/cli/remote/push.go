package remote

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/supervise"
	"github.com/agentfense/agentfense/internal/sandbox/uploaded"
	"github.com/agentfense/agentfense/internal/transfer/scan"
)

// Push uploads a directory.
func (b *Backend) Push(ctx context.Context, p backend.Push) (backend.Codebase, error) {
	return b.push(ctx, p, nil)
}

// push uploads a directory, and notes what is uploaded unless noted is nil. A signal ends
// it, so that no half of a codebase stays.
func (c *Client) push(ctx context.Context, p backend.Push, noted *uploaded.Files) (backend.Codebase, error) {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	from, err := scan.Open(p.Dir)
	if err != nil {
		return backend.Codebase{}, err
	}
	defer from.Close()
	if p.To != "" {
		if _, err := c.Codebase(ctx, p.To); err != nil {
			return backend.Codebase{}, err
		}
		return c.fill(ctx, from, p.To, p.Uploading, noted)
	}
	made, err := c.createOwned(ctx, cmp.Or(p.Name, filepath.Base(from.Path)), p.Owner)
	if err != nil {
		return made, err
	}
	filled, err := c.fill(ctx, from, made.ID, p.Uploading, noted)
	if err != nil {
		if gone := c.DeleteCodebase(context.WithoutCancel(ctx), made.ID); gone != nil && p.Stays != nil {
			p.Stays(made.ID, gone)
		}
		return made, err
	}
	return filled, nil
}

// createOwned makes a codebase. Without an owner it is the token's, which the server
// knows, else this user's.
func (c *Client) createOwned(ctx context.Context, name, owner string) (backend.Codebase, error) {
	made, err := c.CreateCodebase(ctx, name, owner)
	if owner == "" && errdefs.Is(err, errdefs.Invalid) {
		return c.CreateCodebase(ctx, name, supervise.CurrentUser().Name)
	}
	return made, err
}

// fill uploads what is in a directory.
func (c *Client) fill(ctx context.Context, from *scan.Tree, id string, tell backend.Uploading, noted *uploaded.Files) (backend.Codebase, error) {
	sent := 0
	_, err := c.Upload(ctx, id, func() (scan.File, *os.File, error) {
		if tell.Progress != nil {
			tell.Progress(sent, from.Len())
		}
		sent++
		f, content, err := from.Next()
		if err != nil || noted == nil {
			return f, content, err
		}
		if err = noted.Add(f.Path, from.Info(), f.Target, content); err != nil && content != nil {
			content.Close()
		}
		return f, content, err
	})
	if err != nil {
		return backend.Codebase{}, err
	}
	if tell.Skipped != nil && len(from.Skipped) > 0 {
		tell.Skipped(from.Skipped)
	}
	return c.Codebase(ctx, id)
}
