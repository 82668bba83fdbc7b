package service

import (
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/vpath"
)

// ListView lists a directory of a sandbox's view. A page token is the last path
// of the page before.
func (c *sandboxServer) ListView(ctx context.Context, r *sandboxv1.ListViewRequest) (*sandboxv1.ListViewResponse, error) {
	after, err := pageAfter(r.PageSize, r.PageToken)
	if err != nil {
		return nil, err
	}
	view, path, err := c.service.view(ctx, r.SandboxId, r.Path)
	if err != nil {
		return nil, err
	}
	defer view.Close()
	if r.Itself {
		entry, err := view.Stat(path)
		if err != nil {
			return nil, err
		}
		return &sandboxv1.ListViewResponse{Entries: []*sandboxv1.ViewEntry{wireViewEntry(entry)}}, nil
	}
	answer := &sandboxv1.ListViewResponse{}
	size := 0
	for entry, err := range view.ListAfter(path, after) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		e := wireViewEntry(entry)
		size += proto.Size(e) + pageFrame
		if n := len(answer.Entries); n > 0 && (n == int(r.PageSize) || size+len(e.Path) > maxResultBytes) {
			answer.NextPageToken = answer.Entries[n-1].Path
			break
		}
		answer.Entries = append(answer.Entries, e)
	}
	return answer, nil
}

// pageFrame is what a message of a page costs besides itself: tag and length.
const pageFrame = 16

// pageAfter is the path behind which a page begins. Errors: Invalid.
func pageAfter(size int32, token string) (vpath.Path, error) {
	if size < 0 {
		return "", fault.New(fault.Invalid, "page_size: %d is negative", size)
	}
	if token == "" {
		return "", nil
	}
	return parsePath("page_token", token)
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
