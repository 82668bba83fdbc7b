package service

import (
	"context"
	"errors"
	"time"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/config"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/ident"
	"github.com/agentfense/agentfense/internal/store"
	"github.com/agentfense/agentfense/internal/vpath"
)

// wireSync is when changes reach a codebase, on the wire.
var wireSync = map[config.Sync]sandboxv1.SyncMode{
	config.SyncOnExec: sandboxv1.SyncMode_SYNC_MODE_ON_EXEC,
	config.SyncOnStop: sandboxv1.SyncMode_SYNC_MODE_ON_STOP,
	config.SyncManual: sandboxv1.SyncMode_SYNC_MODE_MANUAL,
}

// syncModeOf reads when the changes of a sandbox of a codebase are to reach it, ""
// for what the server is configured to do. Errors: Invalid.
func syncModeOf(mode sandboxv1.SyncMode, of store.Codebase) (config.Sync, error) {
	if mode == sandboxv1.SyncMode_SYNC_MODE_UNSPECIFIED {
		return "", nil
	}
	for sync, m := range wireSync {
		switch {
		case m != mode:
		case of.LinkedPath != "" && sync != config.SyncManual:
			return "", fault.New(fault.Invalid, "sync: codebase %s is linked: only SYNC_MODE_MANUAL is possible", of.ID)
		default:
			return sync, nil
		}
	}
	return "", fault.New(fault.Invalid, "sync: unknown value %d (want SYNC_MODE_ON_EXEC, SYNC_MODE_ON_STOP or SYNC_MODE_MANUAL)", mode)
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
	id := ident.NewCodebase()
	made, err := c.service.codebases.Link(id, vpath.DecodeText(r.Path), r.IgnoreFiles)
	if err != nil {
		return nil, fault.New(fault.KindOf(err), "path: %w", err)
	}
	link, _ := made.Linked()
	now := time.Now()
	entry := store.Codebase{ID: id, Name: r.Name, OwnerID: r.OwnerId, LinkedPath: link.Path, CreatedAt: now, UpdatedAt: now}
	if err := c.service.store.AddCodebase(ctx, entry, c.service.config.Limits.MaxCodebasesPerOwner); err != nil {
		return nil, errors.Join(err, c.service.codebases.Delete(made.ID()))
	}
	c.service.hidden.add(link.Path)
	c.service.log.InfoContext(ctx, "codebase: linked", "codebase", id, "path", link.Path, "by", caller.Name)
	return wireCodebase(entry), nil
}
