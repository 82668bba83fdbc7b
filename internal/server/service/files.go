package service

import (
	"context"
	"errors"
	"io"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// parsePath reads a path of the wire.
func parsePath(field, text string) (vpath.Path, error) {
	p, err := vpath.ParseText(text)
	if err != nil {
		return "", errdefs.New(errdefs.Invalid, "%s: %w", field, err)
	}
	return p, nil
}

// parseFilePath is parsePath for what must name something.
func parseFilePath(text string) (vpath.Path, error) {
	p, err := parsePath("file_path", text)
	if err == nil && p.IsRoot() {
		err = errdefs.New(errdefs.Invalid, "file_path: is required")
	}
	return p, err
}

// chunkBytes is how much of a file goes into one message.
const chunkBytes = 64 << 10

// DownloadFile sends a file in pieces.
func (c *codebaseServer) DownloadFile(r *sandboxv1.DownloadFileRequest, to sandboxv1.CodebaseService_DownloadFileServer) error {
	files, err := c.service.files(to.Context(), r.CodebaseId)
	if err != nil {
		return err
	}
	p, err := parseFilePath(r.FilePath)
	if err != nil {
		return err
	}
	f, _, err := files.OpenFile(p)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		buffer := make([]byte, chunkBytes) // the message keeps it
		n, err := io.ReadFull(f, buffer)
		if n > 0 {
			if err := to.Send(&sandboxv1.FileChunk{Data: buffer[:n]}); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return errdefs.New(errdefs.Internal, "download %s: %w", p, err)
		}
	}
}

// ListFiles lists a directory, or all below it.
func (c *codebaseServer) ListFiles(ctx context.Context, r *sandboxv1.ListFilesRequest) (*sandboxv1.ListFilesResponse, error) {
	files, err := c.service.files(ctx, r.CodebaseId)
	if err != nil {
		return nil, err
	}
	p, err := parsePath("path", r.Path)
	if err != nil {
		return nil, err
	}
	list, err := files.List(ctx, p, r.Recursive)
	if err != nil {
		return nil, err
	}
	answer := &sandboxv1.ListFilesResponse{}
	for _, i := range list {
		answer.Files = append(answer.Files, wireconv.EncodeFile(wireconv.File(i)))
	}
	return answer, nil
}

// DeleteFile removes a file, or a directory and all below it.
func (c *codebaseServer) DeleteFile(ctx context.Context, r *sandboxv1.DeleteFileRequest) (*sandboxv1.Empty, error) {
	files, err := c.service.files(ctx, r.CodebaseId)
	if err != nil {
		return nil, err
	}
	p, err := parseFilePath(r.FilePath)
	if err != nil {
		return nil, err
	}
	if err := files.Remove(p); err != nil {
		return nil, err
	}
	return &sandboxv1.Empty{}, c.service.tell(ctx, files.ID(), "", []vpath.Path{p})
}
