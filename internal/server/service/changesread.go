package service

import (
	"errors"
	"io"
	"os"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/vpath"
)

// ReadChanges sends changes with their contents.
func (c *sandboxServer) ReadChanges(r *sandboxv1.ReadChangesRequest, to sandboxv1.SandboxService_ReadChangesServer) error {
	ctx := to.Context()
	sb, err := c.service.sandbox(ctx, r.SandboxId)
	if err != nil {
		return err
	}
	o := sandbox.ApplyOptions{Reviewed: r.ReviewedDigest}
	if o.Paths, err = selection(r.Paths); err != nil {
		return err
	}
	toldWhy := mayKnowPolicy(ctx)
	return sb.ReadChanges(o, func(change sandbox.CarriedChange, content *os.File) error {
		if change.Outcome == sandbox.Refused && !toldWhy {
			change.Reason = unknownPolicy
		}
		if err := to.Send(wireCarried(change)); err != nil || content == nil {
			return err
		}
		return sendContent(to, io.LimitReader(content, change.SizeBytes), change.Path)
	})
}

func wireCarried(c sandbox.CarriedChange) *sandboxv1.ReadChangesResponse {
	change := &sandboxv1.ReadChangesResponse_Change{
		Path: c.Path.Text(), Status: changeOf[c.Status], Outcome: outcomeOf[c.Outcome], Reason: c.Reason,
	}
	if c.Mode != 0 {
		change.State = &sandboxv1.FileState{Mode: c.Mode, Size: c.SizeBytes, SymlinkTarget: vpath.EncodeText(c.Target), Sha256: c.SHA256}
	}
	return &sandboxv1.ReadChangesResponse{Message: &sandboxv1.ReadChangesResponse_Change_{Change: change}}
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
			return fault.New(fault.Internal, "read %s: %w", path, err)
		}
	}
}
