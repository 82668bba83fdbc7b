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

// chunkBytes is the size of a piece of a file in one message.
const chunkBytes = 64 << 10

// DownloadFile sends a file in pieces.
func (c *codebaseServer) DownloadFile(m *sandboxv1.DownloadFileRequest, to sandboxv1.CodebaseService_DownloadFileServer) error {
	r, err := wireconv.DecodeCodebaseFile(m)
	if err != nil {
		return err
	}
	files, err := c.service.files(to.Context(), r.Codebase)
	if err != nil {
		return err
	}
	f, _, err := files.OpenFile(r.Path)
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
			return errdefs.New(errdefs.Internal, "download %s: %w", r.Path, err)
		}
	}
}

// ListFiles lists a directory, or everything below it.
func (c *codebaseServer) ListFiles(ctx context.Context, m *sandboxv1.ListFilesRequest) (*sandboxv1.ListFilesResponse, error) {
	r, err := wireconv.DecodeListFiles(m)
	if err != nil {
		return nil, err
	}
	files, err := c.service.files(ctx, r.Codebase)
	if err != nil {
		return nil, err
	}
	list, err := files.List(ctx, r.Path, r.Recursive)
	if err != nil {
		return nil, err
	}
	answer := &sandboxv1.ListFilesResponse{}
	for _, i := range list {
		answer.Files = append(answer.Files, wireconv.EncodeFile(wireconv.File(i)))
	}
	return answer, nil
}

// DeleteFile removes a file, or a directory with everything below it.
func (c *codebaseServer) DeleteFile(ctx context.Context, m *sandboxv1.DeleteFileRequest) (*sandboxv1.Empty, error) {
	r, err := wireconv.DecodeCodebaseFile(m)
	if err != nil {
		return nil, err
	}
	files, err := c.service.files(ctx, r.Codebase)
	if err != nil {
		return nil, err
	}
	if err := files.Remove(r.Path); err != nil {
		return nil, err
	}
	return &sandboxv1.Empty{}, c.service.tell(ctx, files.ID(), "", []vpath.Path{r.Path})
}
