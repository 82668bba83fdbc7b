package service

import (
	"context"
	"errors"
	"time"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/server/store"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// syncModeOf reads when the changes of a sandbox of a codebase are to reach it, ""
// for what the server is configured to do. Errors: Invalid.
func syncModeOf(mode sandboxv1.SyncMode, of store.Codebase) (config.Sync, error) {
	sync, err := wireconv.Sync.Parse("sync", mode)
	if err == nil && of.LinkedPath != "" && sync != "" && sync != config.SyncManual {
		err = errdefs.New(errdefs.Invalid, "sync: codebase %s is linked: only SYNC_MODE_MANUAL is possible", of.ID)
	}
	return sync, err
}

// LinkCodebase makes a codebase of a directory of the server's host, for
// callers who may name its files.
func (c *codebaseServer) LinkCodebase(ctx context.Context, r *sandboxv1.LinkCodebaseRequest) (*sandboxv1.Codebase, error) {
	if err := checkNames(r.Name, r.OwnerId); err != nil {
		return nil, err
	}
	if err := required("path", r.Path); err != nil {
		return nil, err
	}
	caller := callerOf(ctx)
	if err := caller.ReachHost(); err != nil {
		return nil, err
	}
	key := id.NewCodebase()
	made, err := c.service.codebases.Link(key, vpath.DecodeText(r.Path), r.IgnoreFiles)
	if err != nil {
		return nil, errdefs.New(errdefs.KindOf(err), "path: %w", err)
	}
	link, _ := made.Linked()
	now := time.Now()
	entry := store.Codebase{ID: key, Name: r.Name, OwnerID: r.OwnerId, LinkedPath: link.Path, CreatedAt: now, UpdatedAt: now}
	if err := c.service.store.AddCodebase(ctx, entry, c.service.config.Limits.MaxCodebasesPerOwner); err != nil {
		return nil, errors.Join(err, c.service.codebases.Delete(made.ID()))
	}
	c.service.hidden.add(link.Path)
	c.service.log.InfoContext(ctx, "codebase: linked", "codebase", key, "path", link.Path, "by", caller.Name)
	return wireCodebase(entry), nil
}
