// Package stream transfers files to a server and back, in pieces, over the streams of sandbox.v1.
// It returns the errors of calls unchanged.
package stream

import (
	"context"
	"errors"
	"io"
	"os"

	"google.golang.org/grpc"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/transfer/scan"
)

// Bytes is the size of a piece in one message.
const Bytes = 64 << 10

// Tree uploads the entries that next returns to a codebase, until next returns io.EOF. It reads the
// content from the open file, nil for an entry without content, and closes it. After an error, the
// entries before it may be stored.
func Tree(ctx context.Context, to sandboxv1.CodebaseServiceClient, id string, next func() (scan.File, *os.File, error)) (*sandboxv1.UploadTreeResult, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the call if next fails
	defer cancel()
	stream, err := to.UploadTree(ctx)
	if err != nil {
		return nil, err
	}
	for empty := true; ; empty = false {
		file, content, err := next()
		if errors.Is(err, io.EOF) && empty {
			return nothing(ctx, to, id)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = send(stream, id, file, content)
		}
		if errors.Is(err, io.EOF) { // the server has ended the call: its answer has the error
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return stream.CloseAndRecv()
}

// nothing is an upload without files, whose stream would not name the codebase. Errors:
// Precondition for a linked codebase.
func nothing(ctx context.Context, to sandboxv1.CodebaseServiceClient, id string) (*sandboxv1.UploadTreeResult, error) {
	got, err := to.GetCodebase(ctx, &sandboxv1.GetCodebaseRequest{CodebaseId: id})
	if err != nil {
		return nil, err
	}
	if got.Linked {
		return nil, errdefs.New(errdefs.Precondition, "upload: codebase %s is linked", id)
	}
	return &sandboxv1.UploadTreeResult{CodebaseId: id}, nil
}

// uploading is the sending side of an upload.
type uploading interface {
	Send(chunk *sandboxv1.UploadChunk) error
}

// send sends one file. It returns io.EOF if the server has ended the call.
func send(to uploading, id string, f scan.File, content *os.File) error {
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

// sendContent sends exactly the bytes that were announced. Errors:
// Precondition if the file has become shorter.
func sendContent(to uploading, f scan.File, content *os.File) error {
	rest := io.LimitReader(content, f.SizeBytes)
	sent := int64(0)
	for {
		buffer := make([]byte, Bytes) // the message keeps it
		n, err := io.ReadFull(rest, buffer)
		if n > 0 {
			if err := to.Send(&sandboxv1.UploadChunk{Content: &sandboxv1.UploadChunk_Data{Data: buffer[:n]}}); err != nil {
				return err
			}
			sent += int64(n)
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			if sent < f.SizeBytes {
				return errdefs.New(errdefs.Precondition, "upload %s: the file became shorter while it was read", f.Path)
			}
			return nil
		case err != nil:
			return errdefs.New(errdefs.Internal, "upload %s: %w", f.Path, err)
		}
	}
}

// Content writes the pieces of a call's answer to w. Errors: those of w as Unwritten.
func Content[Q, T any, P interface {
	*T
	GetData() []byte
}](ctx context.Context, w io.Writer, call func(context.Context, Q, ...grpc.CallOption) (grpc.ServerStreamingClient[T], error), request Q) error {
	ctx, cancel := context.WithCancel(ctx) // ends the stream if w fails
	defer cancel()
	from, err := call(ctx, request)
	if err != nil {
		return err
	}
	for {
		piece, err := from.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if _, err := w.Write(P(piece).GetData()); err != nil {
			return Unwritten{err}
		}
	}
}

// Unwritten is an error of the writer.
type Unwritten struct{ Err error }

// Error returns the text of Err.
func (u Unwritten) Error() string { return u.Err.Error() }

// Unwrap returns Err.
func (u Unwritten) Unwrap() error { return u.Err }
