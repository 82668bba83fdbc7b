package client

import (
	"context"
	"iter"
	"os"
	"os/user"
	"path"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Codebase describes a codebase of the server.
type Codebase struct {
	ID, Name, OwnerID string
	SizeBytes         int64
	FileCount         int
	CreatedAt         time.Time
	UpdatedAt         time.Time
	Linked            bool // a directory of the server's host
}

func codebaseFrom(c *sandboxv1.Codebase) Codebase {
	return Codebase{
		ID: c.Id, Name: c.Name, OwnerID: c.OwnerId, SizeBytes: c.Size, FileCount: int(c.FileCount),
		CreatedAt: c.CreatedAt.AsTime(), UpdatedAt: c.UpdatedAt.AsTime(), Linked: c.Linked,
	}
}

// CreateCodebase creates an empty codebase, for UploadFile and UploadTree. With an empty ownerID it
// belongs to the token's owner, or to this user if the token has none. Errors: ErrInvalid;
// ErrDenied for an ownerID for which the token may not act.
func (c *Client) CreateCodebase(ctx context.Context, name, ownerID string) (Codebase, error) {
	got, err := c.createCodebase(ctx, name, ownerID)
	if ownerID == "" && status.Code(err) == codes.InvalidArgument { // the token has no owner
		got, err = c.createCodebase(ctx, name, userName())
	}
	if err != nil {
		return Codebase{}, c.fail(ctx, "create codebase", err)
	}
	return codebaseFrom(got), nil
}

func (c *Client) createCodebase(ctx context.Context, name, ownerID string) (*sandboxv1.Codebase, error) {
	return lasting(ctx, c.codebases.CreateCodebase, &sandboxv1.CreateCodebaseRequest{Name: name, OwnerId: ownerID}, c.unmake)
}

// unmake removes a codebase that was created for a caller whose context has ended.
func (c *Client) unmake(ctx context.Context, made *sandboxv1.Codebase) error {
	return c.DeleteCodebase(ctx, made.Id)
}

// userName is the owner for a token without one, as on the command line.
func userName() string {
	id := strconv.Itoa(os.Geteuid())
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

// LinkCodebase creates a codebase from a directory of the server's host. Only Apply changes the
// directory. dir is absolute. Errors: ErrInvalid, ErrNotFound, ErrDenied.
func (c *Client) LinkCodebase(ctx context.Context, dir string, options ...LinkOption) (Codebase, error) {
	return c.linked(ctx, dir, collect(options))
}

func (c *Client) linked(ctx context.Context, dir string, o *settings) (Codebase, error) {
	got, err := lasting(ctx, c.codebases.LinkCodebase, &sandboxv1.LinkCodebaseRequest{
		Name: vpath.EncodeText(first(o.codebaseName, path.Base(dir))), OwnerId: first(o.ownerID, userName()),
		Path: vpath.EncodeText(dir), IgnoreFiles: o.ignoreFiles,
	}, c.unmake)
	if err != nil {
		return Codebase{}, c.fail(ctx, "link "+dir, err)
	}
	return codebaseFrom(got), nil
}

// Codebase returns the codebase with an id. Errors: ErrNotFound.
func (c *Client) Codebase(ctx context.Context, id string) (Codebase, error) {
	got, err := c.codebases.GetCodebase(ctx, &sandboxv1.GetCodebaseRequest{CodebaseId: id})
	if err != nil {
		return Codebase{}, c.fail(ctx, "get codebase", err)
	}
	return codebaseFrom(got), nil
}

// Codebases lists the codebases of one owner, or with "" all that the token reaches.
func (c *Client) Codebases(ctx context.Context, ownerID string) iter.Seq2[Codebase, error] {
	return pages(func(token string) ([]*sandboxv1.Codebase, string, error) {
		page, err := c.codebases.ListCodebases(ctx, &sandboxv1.ListCodebasesRequest{OwnerId: ownerID, PageToken: token})
		return page.GetCodebases(), page.GetNextPageToken(), c.fail(ctx, "list codebases", err)
	}, codebaseFrom)
}

// DeleteCodebase removes a codebase and its files; for a linked one, only the link. Errors:
// ErrNotFound; ErrPrecondition while sandboxes use it.
func (c *Client) DeleteCodebase(ctx context.Context, id string) error {
	_, err := c.codebases.DeleteCodebase(ctx, &sandboxv1.DeleteCodebaseRequest{CodebaseId: id})
	return c.fail(ctx, "delete codebase", err)
}
