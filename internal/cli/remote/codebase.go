package remote

import (
	"context"
	"errors"
	"io"
	"os"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/server/wireconv"
	"github.com/agentfense/agentfense/internal/transfer/scan"
	"github.com/agentfense/agentfense/internal/transfer/stream"
)

func codebaseOf(c *sandboxv1.Codebase) backend.Codebase {
	return backend.Codebase(wireconv.DecodeCodebase(c))
}

// CreateCodebase makes an empty codebase.
func (c *Client) CreateCodebase(ctx context.Context, name, owner string) (backend.Codebase, error) {
	made, err := c.codebases.CreateCodebase(ctx, &sandboxv1.CreateCodebaseRequest{Name: name, OwnerId: owner})
	if err != nil {
		return backend.Codebase{}, c.failed(err)
	}
	return codebaseOf(made), nil
}

// Codebase describes a codebase.
func (c *Client) Codebase(ctx context.Context, id string) (backend.Codebase, error) {
	found, err := c.codebases.GetCodebase(ctx, &sandboxv1.GetCodebaseRequest{CodebaseId: id})
	if err != nil {
		return backend.Codebase{}, c.failed(err)
	}
	return codebaseOf(found), nil
}

// Codebases lists the codebases of an owner, "" for all that may be seen.
func (c *Client) Codebases(ctx context.Context, owner string) ([]backend.Codebase, error) {
	var all []backend.Codebase
	r := &sandboxv1.ListCodebasesRequest{OwnerId: owner}
	for {
		page, err := c.codebases.ListCodebases(ctx, r)
		if err != nil {
			return nil, c.failed(err)
		}
		for _, found := range page.Codebases {
			all = append(all, codebaseOf(found))
		}
		if r.PageToken, err = stream.NextPage(r.PageToken, page.NextPageToken); err != nil || r.PageToken == "" {
			return all, err
		}
	}
}

// DeleteCodebase removes a codebase with its files.
func (c *Client) DeleteCodebase(ctx context.Context, id string) error {
	_, err := c.codebases.DeleteCodebase(ctx, &sandboxv1.DeleteCodebaseRequest{CodebaseId: id})
	return c.failed(err)
}

// Files lists a directory of a codebase, with recursive all below it.
func (c *Client) Files(ctx context.Context, id string, dir vpath.Path, recursive bool) ([]scan.File, error) {
	list, err := c.codebases.ListFiles(ctx, &sandboxv1.ListFilesRequest{CodebaseId: id, Path: dir.Text(), Recursive: recursive})
	if err != nil {
		return nil, c.failed(err)
	}
	files := make([]scan.File, len(list.Files))
	for i, m := range list.Files {
		f, err := wireconv.DecodeFile(m)
		if err != nil {
			return nil, err
		}
		files[i] = scan.File{Path: f.Path, Mode: stream.FileMode(f.Mode), SizeBytes: f.SizeBytes, Target: f.LinkTarget}
	}
	return files, nil
}

// Download writes a file of a codebase to w.
func (c *Client) Download(ctx context.Context, w io.Writer, id string, path vpath.Path) error {
	return c.written(stream.Content(ctx, w, c.codebases.DownloadFile, &sandboxv1.DownloadFileRequest{CodebaseId: id, FilePath: path.Text()}))
}

// written is the error of carrying content to a writer, whose own errors stay
// what they are.
func (c *Client) written(err error) error {
	if local := (stream.Unwritten{}); errors.As(err, &local) {
		return local.Err
	}
	return c.failed(err)
}

// Upload puts into a codebase what each returns, in its order, until each
// returns io.EOF. A file's content is read from open, which may be nil for what
// has none. What was sent before an error may be stored.
func (c *Client) Upload(ctx context.Context, id string, next func() (scan.File, *os.File, error)) (files int64, err error) {
	result, err := stream.Tree(ctx, c.codebases, id, next)
	if err != nil {
		return 0, c.failed(err)
	}
	return result.FileCount, nil
}
