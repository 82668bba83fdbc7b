package service

import (
	"context"
	"errors"
	"time"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/server/store"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// checkSync refuses a mode that a codebase cannot have. Errors: Invalid.
func checkSync(mode config.Sync, of store.Codebase) error {
	if of.LinkedPath != "" && mode != "" && mode != config.SyncManual {
		return errdefs.New(errdefs.Invalid, "sync: codebase %s is linked: only SYNC_MODE_MANUAL is possible", of.ID)
	}
	return nil
}

// LinkCodebase creates a codebase from a directory of the server's host, for callers that may name
// files of the host.
func (c *codebaseServer) LinkCodebase(ctx context.Context, m *sandboxv1.LinkCodebaseRequest) (*sandboxv1.Codebase, error) {
	r, err := wireconv.DecodeLinkCodebase(m)
	if err != nil {
		return nil, err
	}
	if err := checkNames(r.NewCodebase); err != nil {
		return nil, err
	}
	caller := callerOf(ctx)
	if err := caller.ReachHost(); err != nil {
		return nil, err
	}
	key := id.NewCodebase()
	made, err := c.service.codebases.Link(key, r.Path, r.IgnoreFiles)
	if err != nil {
		return nil, errdefs.New(errdefs.KindOf(err), "path: %w", err)
	}
	link, _ := made.Linked()
	now := time.Now()
	entry := store.Codebase{ID: key, Name: r.Name, OwnerID: r.OwnerID, LinkedPath: link.Path, CreatedAt: now, UpdatedAt: now}
	if err := c.service.store.AddCodebase(ctx, entry, c.service.config.Limits.MaxCodebasesPerOwner); err != nil {
		return nil, errors.Join(err, c.service.codebases.Delete(made.ID()))
	}
	c.service.hidden.add(link.Path)
	c.service.log.InfoContext(ctx, "codebase linked", "codebase", key, "path", link.Path, "by", caller.Name)
	return wireCodebase(entry), nil
}
