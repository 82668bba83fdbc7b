package service

import (
	"errors"
	"io"
	"os"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// ReadChanges sends changes with their contents.
func (c *sandboxServer) ReadChanges(r *sandboxv1.ReadChangesRequest, to sandboxv1.SandboxService_ReadChangesServer) error {
	ctx := to.Context()
	a, err := wireconv.DecodeReadChanges(r)
	if err != nil {
		return err
	}
	part, err := c.service.changesToRead(ctx, a.Sandbox, a.Mount)
	if err != nil {
		return err
	}
	showReason := mayKnowPolicy(ctx)
	return apply.ReadChanges(part, a.Options, func(change apply.CarriedChange, content *os.File) error {
		if change.Outcome == apply.Refused && !showReason {
			change.Reason = unknownPolicy
		}
		header := &sandboxv1.ReadChangesResponse_Change_{Change: wireconv.EncodeChange(change)}
		if err := to.Send(&sandboxv1.ReadChangesResponse{Message: header}); err != nil || content == nil {
			return err
		}
		return sendContent(to, io.LimitReader(content, change.SizeBytes), change.Path)
	})
}

// sendContent sends a file in pieces.
func sendContent(to sandboxv1.SandboxService_ReadChangesServer, content io.Reader, path vpath.Path) error {
	for {
		buffer := make([]byte, chunkBytes) // the message keeps it
		n, err := io.ReadFull(content, buffer)
		if n > 0 {
			piece := &sandboxv1.ReadChangesResponse{Message: &sandboxv1.ReadChangesResponse_Data{Data: buffer[:n]}}
			if err := to.Send(piece); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return errdefs.New(errdefs.Internal, "read %s: %w", path, err)
		}
	}
}
