package service

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/vpath"
)

// ListView lists a directory of a sandbox's view.
func (c *sandboxServer) ListView(ctx context.Context, r *sandboxv1.ListViewRequest) (*sandboxv1.ListViewResponse, error) {
	view, path, err := c.service.view(ctx, r.SandboxId, r.Path)
	if err != nil {
		return nil, err
	}
	defer view.Close()
	var entries []sandbox.ViewEntry
	if r.Itself {
		entries = make([]sandbox.ViewEntry, 1)
		entries[0], err = view.Stat(path)
	} else {
		entries, err = view.List(path)
	}
	if err != nil {
		return nil, err
	}
	answer := &sandboxv1.ListViewResponse{}
	for _, e := range entries {
		answer.Entries = append(answer.Entries, wireViewEntry(e))
	}
	return answer, nil
}

// ReadView sends a file of a sandbox's view in pieces.
func (c *sandboxServer) ReadView(r *sandboxv1.ReadViewRequest, to sandboxv1.SandboxService_ReadViewServer) error {
	view, path, err := c.service.view(to.Context(), r.SandboxId, r.Path)
	if err != nil {
		return err
	}
	defer view.Close()
	return view.Copy(viewSender{to}, path)
}

// view opens what a sandbox sees and reads which path of it is meant. Close it
// after.
func (s *Service) view(ctx context.Context, id, text string) (*sandbox.View, vpath.Path, error) {
	sb, err := s.sandbox(ctx, id)
	if err != nil {
		return nil, "", err
	}
	path, err := parsePath("path", text)
	if err != nil {
		return nil, "", err
	}
	view, err := s.home.OpenView(sb)
	return view, path, err
}

// viewSender sends what is written to it.
type viewSender struct {
	to sandboxv1.SandboxService_ReadViewServer
}

func (w viewSender) Write(data []byte) (int, error) {
	sent := 0
	for len(data) > 0 {
		n := min(len(data), chunkBytes)
		if err := w.to.Send(&sandboxv1.ReadViewResponse{Data: data[:n]}); err != nil {
			return sent, err
		}
		data, sent = data[n:], sent+n
	}
	return sent, nil
}

var wireOrigin = map[sandbox.Origin]sandboxv1.ViewOrigin{
	sandbox.OfSource: sandboxv1.ViewOrigin_VIEW_ORIGIN_SOURCE,
	sandbox.OfFrozen: sandboxv1.ViewOrigin_VIEW_ORIGIN_FROZEN,
	sandbox.OfDelta:  sandboxv1.ViewOrigin_VIEW_ORIGIN_DELTA,
}

func wireViewEntry(e sandbox.ViewEntry) *sandboxv1.ViewEntry {
	return &sandboxv1.ViewEntry{
		Path: e.Path.Text(), Permission: wirePermission[e.Permission], Mode: e.Mode, Size: e.SizeBytes,
		ModifiedAt: timestamppb.New(e.ModifiedAt), Origin: wireOrigin[e.Origin], SymlinkTarget: vpath.EncodeText(e.Target),
	}
}
