package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"time"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// Codebase is a source that the server knows.
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

// CreateCodebase makes an empty codebase, to be filled by Upload.
// Errors: ErrInvalid, ErrDenied for another's ownerID.
func (c *Client) CreateCodebase(ctx context.Context, name, ownerID string) (Codebase, error) {
	got, err := c.codebases.CreateCodebase(ctx, &sandboxv1.CreateCodebaseRequest{Name: name, OwnerId: ownerID})
	if err != nil {
		return Codebase{}, fail(ctx, "create codebase", err)
	}
	return codebaseFrom(got), nil
}

// Link makes a codebase of a directory of the server's host, which nothing but
// Apply changes. dir is absolute.
// Errors: ErrInvalid, ErrNotFound, ErrDenied.
func (c *Client) Link(ctx context.Context, dir string, options ...LinkOption) (Codebase, error) {
	s := collect(options)
	got, err := c.codebases.LinkCodebase(ctx, &sandboxv1.LinkCodebaseRequest{
		Name: first(s.codebaseName, dir), OwnerId: first(s.ownerID, os.Getenv("USER"), "local"), Path: dir, IgnoreFiles: s.ignoreFiles,
	})
	if err != nil {
		return Codebase{}, fail(ctx, "link "+dir, err)
	}
	return codebaseFrom(got), nil
}

// Codebase returns one. Errors: ErrNotFound.
func (c *Client) Codebase(ctx context.Context, id string) (Codebase, error) {
	got, err := c.codebases.GetCodebase(ctx, &sandboxv1.GetCodebaseRequest{CodebaseId: id})
	if err != nil {
		return Codebase{}, fail(ctx, "get codebase", err)
	}
	return codebaseFrom(got), nil
}

// Codebases lists them, of one owner or, with "", all that the token reaches.
func (c *Client) Codebases(ctx context.Context, ownerID string) iter.Seq2[Codebase, error] {
	return pages(func(token string) ([]*sandboxv1.Codebase, string, error) {
		page, err := c.codebases.ListCodebases(ctx, &sandboxv1.ListCodebasesRequest{OwnerId: ownerID, PageToken: token})
		return page.GetCodebases(), page.GetNextPageToken(), fail(ctx, "list codebases", err)
	}, codebaseFrom)
}

// DeleteCodebase removes a codebase and its files; of a linked one only the
// link. Errors: ErrNotFound; ErrPrecondition while it has sandboxes.
func (c *Client) DeleteCodebase(ctx context.Context, id string) error {
	_, err := c.codebases.DeleteCodebase(ctx, &sandboxv1.DeleteCodebaseRequest{CodebaseId: id})
	return fail(ctx, "delete codebase", err)
}

// uploadPiece is how much of a file goes into one message.
const uploadPiece = 64 << 10

// Upload writes a file of a codebase, whole or not at all. mode 0 is 0644.
// Errors: ErrNotFound, ErrInvalid for a path that leads out, ErrExhausted,
// ErrPrecondition for a linked codebase.
func (c *Client) Upload(ctx context.Context, codebaseID, path string, content io.Reader, mode uint32) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.codebases.UploadFiles(ctx)
	if err != nil {
		return fail(ctx, "upload "+path, err)
	}
	send := func(m *sandboxv1.UploadChunk) error {
		if err := stream.Send(m); err != nil && !errors.Is(err, io.EOF) { // EOF: the answer says why
			return fail(ctx, "upload "+path, err)
		}
		return nil
	}
	head := &sandboxv1.UploadChunk_Metadata{CodebaseId: codebaseID, FilePath: path, Mode: mode}
	if err := send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Metadata_{Metadata: head}}); err != nil {
		return err
	}
	for piece := make([]byte, uploadPiece); ; {
		n, err := io.ReadFull(content, piece)
		if n > 0 {
			if err := send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Data{Data: piece[:n]}}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return &Error{"upload " + path, err.Error(), []error{err}}
		}
	}
	_, err = stream.CloseAndRecv()
	return fail(ctx, "upload "+path, err)
}

// Download writes the content of a codebase's file to w. Errors: ErrNotFound.
func (c *Client) Download(ctx context.Context, codebaseID, path string, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.codebases.DownloadFile(ctx, &sandboxv1.DownloadFileRequest{CodebaseId: codebaseID, FilePath: path})
	for err == nil {
		var piece *sandboxv1.FileChunk
		if piece, err = stream.Recv(); err == nil {
			if _, err := w.Write(piece.Data); err != nil {
				return &Error{"download " + path, err.Error(), []error{err}}
			}
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fail(ctx, "download "+path, err)
}

// FileInfo is an entry of a codebase.
type FileInfo struct {
	Path       string // from the codebase's root
	IsDir      bool
	SizeBytes  int64
	ModifiedAt time.Time
	Mode       uint32
	Target     string // of a symbolic link
}

// ListFiles lists a directory of a codebase, or all below it.
// Errors: ErrNotFound.
func (c *Client) ListFiles(ctx context.Context, codebaseID, path string, recursive bool) ([]FileInfo, error) {
	got, err := c.codebases.ListFiles(ctx, &sandboxv1.ListFilesRequest{CodebaseId: codebaseID, Path: path, Recursive: recursive})
	if err != nil {
		return nil, fail(ctx, "list files", err)
	}
	files := make([]FileInfo, len(got.Files))
	for i, f := range got.Files {
		files[i] = FileInfo{f.Path, f.IsDir, f.Size, f.ModifiedAt.AsTime(), f.Mode, f.SymlinkTarget}
	}
	return files, nil
}
