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

// required refuses an empty field. Errors: Invalid.
func required(field, value string) error {
	if value == "" {
		return errdefs.New(errdefs.Invalid, "%s: is required", field)
	}
	return nil
}

// maxNameBytes bounds the name and the owner of a codebase.
const maxNameBytes = 1024

// checkNames refuses a codebase without a name or an owner.
func checkNames(name, owner string) error {
	for _, f := range []struct{ field, value string }{{"name", name}, {"owner_id", owner}} {
		if err := required(f.field, f.value); err != nil {
			return err
		}
		if len(f.value) > maxNameBytes {
			return errdefs.New(errdefs.Invalid, "%s: is longer than %d bytes", f.field, maxNameBytes)
		}
	}
	return nil
}

// CreateCodebase makes an empty codebase. That of a caller with an owner is the
// owner's, also where the request does not say so.
func (c *codebaseServer) CreateCodebase(ctx context.Context, r *sandboxv1.CreateCodebaseRequest) (*sandboxv1.Codebase, error) {
	owner := cmp.Or(r.OwnerId, callerOf(ctx).Owner)
	if err := checkNames(r.Name, owner); err != nil {
		return nil, err
	}
	if err := callerOf(ctx).ActFor(owner); err != nil {
		return nil, err
	}
	made, err := c.service.codebases.Create(id.NewCodebase())
	if err != nil {
		return nil, err
	}
	failpoint.At("create codebase: made")
	now := made.Usage().UpdatedAt
	entry := store.Codebase{
		ID: made.ID(), Name: r.Name, OwnerID: owner, CreatedAt: now, UpdatedAt: now,
	}
	if err := c.service.store.AddCodebase(ctx, entry, c.service.config.Limits.MaxCodebasesPerOwner); err != nil {
		return nil, errors.Join(err, c.service.codebases.Delete(made.ID()))
	}
	return wireCodebase(entry), nil
}

// GetCodebase describes a codebase.
func (c *codebaseServer) GetCodebase(ctx context.Context, r *sandboxv1.GetCodebaseRequest) (*sandboxv1.Codebase, error) {
	entry, err := c.service.codebase(ctx, r.CodebaseId)
	if err != nil {
		return nil, err
	}
	return wireCodebase(entry), nil
}

// ListCodebases lists a page of codebases, the oldest first.
func (c *codebaseServer) ListCodebases(ctx context.Context, r *sandboxv1.ListCodebasesRequest) (*sandboxv1.ListCodebasesResponse, error) {
	owner, err := callerOf(ctx).ListFor(r.OwnerId)
	if err != nil {
		return nil, err
	}
	page, err := c.service.page(r.PageSize, r.PageToken)
	if err != nil {
		return nil, err
	}
	entries, next, err := c.service.store.Codebases(ctx, store.CodebaseFilter{OwnerID: owner}, page)
	if err != nil {
		return nil, err
	}
	answer := &sandboxv1.ListCodebasesResponse{NextPageToken: next}
	for _, entry := range entries {
		answer.Codebases = append(answer.Codebases, wireCodebase(entry))
	}
	return answer, nil
}

// DeleteCodebase removes a codebase that no sandbox is made of.
func (c *codebaseServer) DeleteCodebase(ctx context.Context, r *sandboxv1.DeleteCodebaseRequest) (*sandboxv1.Empty, error) {
	entry, err := c.service.codebase(ctx, r.CodebaseId)
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

// codebase returns what the caller may know of the codebase id.
func (s *Service) codebase(ctx context.Context, key string) (store.Codebase, error) {
	if err := required("codebase_id", key); err != nil {
		return store.Codebase{}, err
	}
	parsed, err := id.ParseCodebase(key)
	if err != nil {
		return store.Codebase{}, err
	}
	entry, err := s.store.Codebase(ctx, parsed)
	if err != nil {
		return store.Codebase{}, err
	}
	return entry, callerOf(ctx).Reach(entry.OwnerID, "codebase", key)
}

// files returns the files of a codebase that the caller may reach.
func (s *Service) files(ctx context.Context, id string) (*codebase.Codebase, error) {
	entry, err := s.codebase(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.codebases.Get(entry.ID)
}

// defaultPageSize is the size of a page where none is asked for.
const defaultPageSize = 100

// page reads what part of a listing is asked for.
func (s *Service) page(size int32, token string) (store.Page, error) {
	most := s.config.Limits.MaxPageSize
	switch {
	case size < 0:
		return store.Page{}, errdefs.New(errdefs.Invalid, "page_size: %d is negative", size)
	case size == 0:
		return store.Page{Size: min(defaultPageSize, most), Token: token}, nil
	}
	return store.Page{Size: min(int(size), most), Token: token}, nil
}

func wireCodebase(c store.Codebase) *sandboxv1.Codebase {
	return wireconv.EncodeCodebase(wireconv.Codebase{
		ID: string(c.ID), Name: c.Name, OwnerID: c.OwnerID, SizeBytes: c.SizeBytes, FileCount: int64(c.FileCount),
		Linked: c.LinkedPath != "", CreatedAt: c.CreatedAt, UpdatedAt: c.UpdatedAt,
	})
}
