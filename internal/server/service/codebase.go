package service

import (
	"cmp"
	"context"
	"errors"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/server/codebase"
	"github.com/agentfense/agentfense/internal/server/store"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// codebaseServer answers the calls of CodebaseService.
type codebaseServer struct {
	sandboxv1.UnimplementedCodebaseServiceServer
	service *Service
}

// maxNameBytes bounds the name and the owner of a codebase.
const maxNameBytes = 1024

// checkNames refuses names that are too long.
func checkNames(c wireconv.NewCodebase) error {
	for _, f := range []struct{ field, value string }{{"name", c.Name}, {"owner_id", c.OwnerID}} {
		if len(f.value) > maxNameBytes {
			return errdefs.New(errdefs.Invalid, "%s: longer than %d bytes", f.field, maxNameBytes)
		}
	}
	return nil
}

// CreateCodebase creates an empty codebase. If the request names no owner, it belongs to the
// caller's.
func (c *codebaseServer) CreateCodebase(ctx context.Context, m *sandboxv1.CreateCodebaseRequest) (*sandboxv1.Codebase, error) {
	r, err := wireconv.DecodeCreateCodebase(m, callerOf(ctx).Owner)
	if err != nil {
		return nil, err
	}
	if err := checkNames(r); err != nil {
		return nil, err
	}
	if err := callerOf(ctx).ActFor(r.OwnerID); err != nil {
		return nil, err
	}
	made, err := c.service.codebases.Create(id.NewCodebase())
	if err != nil {
		return nil, err
	}
	failpoint.At("create codebase: made")
	now := made.Usage().UpdatedAt
	entry := store.Codebase{
		ID: made.ID(), Name: r.Name, OwnerID: r.OwnerID, CreatedAt: now, UpdatedAt: now,
	}
	if err := c.service.store.AddCodebase(ctx, entry, c.service.config.Limits.MaxCodebasesPerOwner); err != nil {
		return nil, errors.Join(err, c.service.codebases.Delete(made.ID()))
	}
	return wireCodebase(entry), nil
}

// GetCodebase describes a codebase.
func (c *codebaseServer) GetCodebase(ctx context.Context, r *sandboxv1.GetCodebaseRequest) (*sandboxv1.Codebase, error) {
	entry, err := c.service.codebaseFor(ctx, r)
	if err != nil {
		return nil, err
	}
	return wireCodebase(entry), nil
}

// ListCodebases lists a page of codebases, the oldest first.
func (c *codebaseServer) ListCodebases(ctx context.Context, m *sandboxv1.ListCodebasesRequest) (*sandboxv1.ListCodebasesResponse, error) {
	r, err := wireconv.DecodeListCodebases(m)
	if err != nil {
		return nil, err
	}
	owner, err := callerOf(ctx).ListFor(r.OwnerID)
	if err != nil {
		return nil, err
	}
	entries, next, err := c.service.store.Codebases(ctx, store.CodebaseFilter{OwnerID: owner}, c.service.page(r.Page))
	if err != nil {
		return nil, err
	}
	answer := &sandboxv1.ListCodebasesResponse{NextPageToken: next}
	for _, entry := range entries {
		answer.Codebases = append(answer.Codebases, wireCodebase(entry))
	}
	return answer, nil
}

// DeleteCodebase removes a codebase that no sandbox uses.
func (c *codebaseServer) DeleteCodebase(ctx context.Context, r *sandboxv1.DeleteCodebaseRequest) (*sandboxv1.Empty, error) {
	entry, err := c.service.codebaseFor(ctx, r)
	if err != nil {
		return nil, err
	}
	id := entry.ID
	if err := c.service.codebases.Doom(id); err != nil {
		return nil, err
	}
	failpoint.At("delete codebase: doomed")
	if err := c.service.store.RemoveCodebase(ctx, entry.ID); err != nil {
		return nil, errors.Join(err, c.service.codebases.Spare(id))
	}
	failpoint.At("delete codebase: forgotten")
	return &sandboxv1.Empty{}, c.service.codebases.Delete(id)
}

// codebaseFor returns the codebase that a request is about. Errors: also NotFound for one of
// another owner.
func (s *Service) codebaseFor(ctx context.Context, r interface{ GetCodebaseId() string }) (store.Codebase, error) {
	key, err := wireconv.CodebaseID(r)
	if err != nil {
		return store.Codebase{}, err
	}
	return s.codebase(ctx, key)
}

// codebase returns a codebase of the caller. Errors: NotFound also for one of another owner.
func (s *Service) codebase(ctx context.Context, key id.Codebase) (store.Codebase, error) {
	entry, err := s.store.Codebase(ctx, key)
	if err != nil {
		return store.Codebase{}, err
	}
	return entry, callerOf(ctx).Reach(entry.OwnerID, "codebase", string(key))
}

// files returns the files of a codebase that the caller may reach.
func (s *Service) files(ctx context.Context, key id.Codebase) (*codebase.Codebase, error) {
	if _, err := s.codebase(ctx, key); err != nil {
		return nil, err
	}
	return s.codebases.Get(key)
}

// defaultPageSize is the size of a page if the request leaves it open.
const defaultPageSize = 100

// page is the part of a listing that a request asks for, within the server's limit.
func (s *Service) page(p wireconv.Page) store.Page {
	return store.Page{Size: min(cmp.Or(p.Size, defaultPageSize), s.config.Limits.MaxPageSize), Token: p.Token}
}

func wireCodebase(c store.Codebase) *sandboxv1.Codebase {
	return wireconv.EncodeCodebase(wireconv.Codebase{
		ID: string(c.ID), Name: c.Name, OwnerID: c.OwnerID, SizeBytes: c.SizeBytes, FileCount: int64(c.FileCount),
		Linked: c.LinkedPath != "", CreatedAt: c.CreatedAt, UpdatedAt: c.UpdatedAt,
	})
}
