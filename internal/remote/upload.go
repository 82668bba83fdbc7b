package remote

import (
	"errors"
	"io"
	"os"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/control"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/vpath"
)

// sendContent sends exactly the bytes that were announced. Errors:
// Precondition if the file has become shorter.
func sendContent(to uploading, f control.File, content *os.File) error {
	rest := io.LimitReader(content, f.SizeBytes)
	sent := int64(0)
	for {
		buffer := make([]byte, chunkBytes) // the message keeps it
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
				return fault.New(fault.Precondition, "upload %s: the file became shorter while it was read", f.Path)
			}
			return nil
		case err != nil:
			return fault.New(fault.Internal, "upload %s: %w", f.Path, err)
		}
	}
}

// parsePath reads a path that the server sent. Errors: Internal for one that is
// none: nothing of what the server says is trusted with a file of ours.
func parsePath(text string) (vpath.Path, error) {
	p, err := vpath.ParseText(text)
	if err != nil {
		return "", fault.New(fault.Internal, "the server names a path that is none: %w", err)
	}
	return p, nil
}
