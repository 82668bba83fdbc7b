package client

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/transfer/scan"
	"github.com/agentfense/agentfense/internal/transfer/stream"
)

// UploadFile writes a file of a codebase; after an error the file is unchanged. mode 0 is 0644.
// Errors: ErrNotFound, ErrInvalid for a path outside of the codebase, ErrExhausted, ErrPrecondition
// for a linked codebase.
func (c *Client) UploadFile(ctx context.Context, codebaseID, name string, content io.Reader, mode fs.FileMode) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	call, err := c.codebases.UploadFiles(ctx)
	if err != nil {
		return c.fail(ctx, "upload "+name, err)
	}
	send := func(m *sandboxv1.UploadChunk) error {
		if err := call.Send(m); err != nil && !errors.Is(err, io.EOF) { // EOF: the answer has the error
			return c.fail(ctx, "upload "+name, err)
		}
		return nil
	}
	head := &sandboxv1.UploadChunk_Metadata{CodebaseId: codebaseID, FilePath: vpath.EncodeText(name), Mode: uint32(mode.Perm())}
	if err := send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Metadata_{Metadata: head}}); err != nil {
		return err
	}
	for {
		piece := make([]byte, stream.Bytes) // the message keeps it
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
			return failure("upload "+name, err.Error(), err)
		}
	}
	_, err = call.CloseAndRecv()
	return c.fail(ctx, "upload "+name, err)
}

// UploadTreeResult is what UploadTree stored.
type UploadTreeResult struct {
	FileCount int64 // directories and links too
	SizeBytes int64
	// Skipped are the paths of sockets, FIFOs and devices, which no codebase can hold.
	Skipped []string
}

// UploadTree stores a directory of this host in a codebase, with modes, symbolic links and empty
// directories. Other files of the codebase stay. It leaves out files that match the default
// patterns, .gitignore and .sandboxignore at the root of the directory, or patterns, which have the
// same form. After an error, the files before it are stored. Errors: ErrNotFound, ErrInvalid,
// ErrDenied, ErrExhausted; ErrPrecondition for a linked codebase, and for files that change while
// they are read.
func (c *Client) UploadTree(ctx context.Context, codebaseID, dir string, patterns ...string) (UploadTreeResult, error) {
	return c.uploadTree(ctx, codebaseID, dir, patterns, nil)
}

// uploadTree is UploadTree that records what it uploads in note, unless that is nil.
func (c *Client) uploadTree(ctx context.Context, codebaseID, dir string, patterns []string, note *noted) (UploadTreeResult, error) {
	const operation = "upload"
	from, err := scan.Open(dir, patterns...)
	if err != nil {
		return UploadTreeResult{}, local(operation, err)
	}
	defer from.Close()
	got, err := stream.Tree(ctx, c.codebases, codebaseID, func() (scan.File, *os.File, error) {
		f, content, err := from.Next()
		if err != nil || note == nil {
			return f, content, err
		}
		if err = note.add(f, from.Info(), content); err != nil && content != nil {
			content.Close()
		}
		return f, content, err
	})
	if err != nil {
		if ours := (*errdefs.Error)(nil); errors.As(err, &ours) {
			return UploadTreeResult{}, local(operation, err)
		}
		return UploadTreeResult{}, c.fail(ctx, operation, err)
	}
	result := UploadTreeResult{FileCount: got.FileCount, SizeBytes: got.Size}
	for _, p := range from.Skipped {
		result.Skipped = append(result.Skipped, p.Rel())
	}
	return result, nil
}

// DownloadFile writes the content of a codebase's file to w. Errors: ErrNotFound.
func (c *Client) DownloadFile(ctx context.Context, codebaseID, name string, w io.Writer) error {
	return c.contentError(ctx, "download "+name, stream.Content(ctx, w, c.codebases.DownloadFile, &sandboxv1.DownloadFileRequest{CodebaseId: codebaseID, FilePath: vpath.EncodeText(name)}))
}

// contentError converts an error of copying content to a writer.
func (c *Client) contentError(ctx context.Context, operation string, err error) error {
	if unwritten := (stream.Unwritten{}); errors.As(err, &unwritten) {
		return failure(operation, err.Error(), unwritten.Err)
	}
	return c.fail(ctx, operation, err)
}

// DeleteFile removes a file of a codebase, or a directory with everything below it. Errors:
// ErrNotFound; ErrPrecondition for a linked codebase.
func (c *Client) DeleteFile(ctx context.Context, codebaseID, name string) error {
	_, err := c.codebases.DeleteFile(ctx, &sandboxv1.DeleteFileRequest{CodebaseId: codebaseID, FilePath: vpath.EncodeText(name)})
	return c.fail(ctx, "delete "+name, err)
}

// FileInfo is an entry of a codebase.
type FileInfo struct {
	Path          string // relative to the codebase's root
	IsDir         bool
	SizeBytes     int64
	ModifiedAt    time.Time
	Mode          fs.FileMode
	SymlinkTarget string // of a symbolic link
}

// ListFiles lists a directory of a codebase, or everything below it. Errors: ErrNotFound.
func (c *Client) ListFiles(ctx context.Context, codebaseID, name string, recursive bool) ([]FileInfo, error) {
	got, err := c.codebases.ListFiles(ctx, &sandboxv1.ListFilesRequest{CodebaseId: codebaseID, Path: vpath.EncodeText(name), Recursive: recursive})
	if err != nil {
		return nil, c.fail(ctx, "list files", err)
	}
	files := make([]FileInfo, len(got.Files))
	for i, f := range got.Files {
		files[i] = FileInfo{
			Path: vpath.DecodeText(f.Path), IsDir: f.IsDir, SizeBytes: f.Size, ModifiedAt: f.ModifiedAt.AsTime(),
			Mode: stream.FileMode(f.Mode), SymlinkTarget: vpath.DecodeText(f.SymlinkTarget),
		}
	}
	return files, nil
}
