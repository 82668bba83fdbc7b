package remote

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/control"
	"github.com/agentfense/agentfense/internal/vpath"
)

func codebaseOf(c *sandboxv1.Codebase) control.Codebase {
	return control.Codebase{
		ID: vpath.Escape(c.Id), Name: c.Name, OwnerID: c.OwnerId, SizeBytes: c.Size, FileCount: int64(c.FileCount), Linked: c.Linked,
		CreatedAt: c.CreatedAt.AsTime(), UpdatedAt: c.UpdatedAt.AsTime(),
	}
}

// CreateCodebase makes an empty codebase.
func (c *Client) CreateCodebase(ctx context.Context, name, owner string) (control.Codebase, error) {
	made, err := c.codebases.CreateCodebase(ctx, &sandboxv1.CreateCodebaseRequest{Name: name, OwnerId: owner})
	if err != nil {
		return control.Codebase{}, c.failed(err)
	}
	return codebaseOf(made), nil
}

// Codebase describes a codebase.
func (c *Client) Codebase(ctx context.Context, id string) (control.Codebase, error) {
	found, err := c.codebases.GetCodebase(ctx, &sandboxv1.GetCodebaseRequest{CodebaseId: id})
	if err != nil {
		return control.Codebase{}, c.failed(err)
	}
	return codebaseOf(found), nil
}

// Codebases lists the codebases of an owner, "" for all that may be seen.
func (c *Client) Codebases(ctx context.Context, owner string) ([]control.Codebase, error) {
	var all []control.Codebase
	r := &sandboxv1.ListCodebasesRequest{OwnerId: owner}
	for {
		page, err := c.codebases.ListCodebases(ctx, r)
		if err != nil {
			return nil, c.failed(err)
		}
		for _, found := range page.Codebases {
			all = append(all, codebaseOf(found))
		}
		if r.PageToken = page.NextPageToken; r.PageToken == "" {
			return all, nil
		}
	}
}

// DeleteCodebase removes a codebase with its files.
func (c *Client) DeleteCodebase(ctx context.Context, id string) error {
	_, err := c.codebases.DeleteCodebase(ctx, &sandboxv1.DeleteCodebaseRequest{CodebaseId: id})
	return c.failed(err)
}

// Files lists a directory of a codebase, with recursive all below it.
func (c *Client) Files(ctx context.Context, id string, dir vpath.Path, recursive bool) ([]control.File, error) {
	list, err := c.codebases.ListFiles(ctx, &sandboxv1.ListFilesRequest{CodebaseId: id, Path: dir.Text(), Recursive: recursive})
	if err != nil {
		return nil, c.failed(err)
	}
	files := make([]control.File, len(list.Files))
	for i, f := range list.Files {
		path, err := parsePath(f.Path)
		if err != nil {
			return nil, err
		}
		files[i] = control.File{Path: path, Mode: modeOf(f.Mode), SizeBytes: f.Size, Target: vpath.DecodeText(f.SymlinkTarget)}
	}
	return files, nil
}

// modeOf is a mode of inode(7) as Go has it, of the types that a codebase holds.
func modeOf(mode uint32) fs.FileMode {
	m := fs.FileMode(mode) & fs.ModePerm
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return m | fs.ModeDir
	case unix.S_IFLNK:
		return m | fs.ModeSymlink
	}
	return m
}

// Download writes a file of a codebase to w.
func (c *Client) Download(ctx context.Context, w io.Writer, id string, path vpath.Path) error {
	return download(ctx, c, w, func(ctx context.Context) (grpc.ServerStreamingClient[sandboxv1.FileChunk], error) {
		return c.codebases.DownloadFile(ctx, &sandboxv1.DownloadFileRequest{CodebaseId: id, FilePath: path.Text()})
	})
}

// download writes to w what comes in the pieces of a stream.
func download[T any, P interface {
	*T
	GetData() []byte
}](ctx context.Context, c *Client, w io.Writer, open func(context.Context) (grpc.ServerStreamingClient[T], error),
) error {
	ctx, cancel := context.WithCancel(ctx) // ends the stream if w fails
	defer cancel()
	from, err := open(ctx)
	if err != nil {
		return c.failed(err)
	}
	for {
		piece, err := from.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return c.failed(err)
		}
		if _, err := w.Write(P(piece).GetData()); err != nil {
			return err
		}
	}
}

// chunkBytes is how much of a file goes into one message.
const chunkBytes = 64 << 10

// Upload puts into a codebase what each returns, in its order, until each
// returns io.EOF. A file's content is read from open, which may be nil for what
// has none. What was sent before an error may be stored.
func (c *Client) Upload(ctx context.Context, id string, next func() (control.File, *os.File, error)) (files int64, err error) {
	ctx, cancel := context.WithCancel(ctx) // gives up what is under way if next fails
	defer cancel()
	to, err := c.codebases.UploadTree(ctx)
	if err != nil {
		return 0, c.failed(err)
	}
	for {
		file, content, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = send(to, id, file, content)
		}
		if errors.Is(err, io.EOF) { // the server has ended the call: its answer says why
			break
		}
		if err != nil {
			return 0, err
		}
	}
	result, err := to.CloseAndRecv()
	if err != nil {
		return 0, c.failed(err)
	}
	return result.FileCount, nil
}

// uploading is the sending side of an upload.
type uploading interface {
	Send(chunk *sandboxv1.UploadChunk) error
}

// send sends one file. It returns io.EOF if the server has ended the call.
func send(to uploading, id string, f control.File, content *os.File) error {
	m := &sandboxv1.UploadChunk_Metadata{
		CodebaseId: id, FilePath: f.Path.Text(), Mode: uint32(f.Mode.Perm()), SymlinkTarget: vpath.EncodeText(f.Target),
		Directory: f.Mode.IsDir(), TotalSize: f.SizeBytes,
	}
	if content != nil {
		defer content.Close()
	}
	if err := to.Send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Metadata_{Metadata: m}}); err != nil {
		return err
	}
	if content == nil {
		return nil
	}
	return sendContent(to, f, content)
}
