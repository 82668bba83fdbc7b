package service

import (
	"context"

	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/readview"
	"github.com/agentfense/agentfense/internal/server/wireconv"
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
		return &sandboxv1.ListViewResponse{Entries: []*sandboxv1.ViewEntry{wireconv.EncodeViewEntry(entry)}}, nil
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
		e := wireconv.EncodeViewEntry(entry)
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
		return "", errdefs.New(errdefs.Invalid, "page_size: %d is negative", size)
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
func (s *Service) view(ctx context.Context, id, text string) (*readview.View, vpath.Path, error) {
	sb, err := s.sandbox(ctx, id)
	if err != nil {
		return nil, "", err
	}
	path, err := parsePath("path", text)
	if err != nil {
		return nil, "", err
	}
	view, err := readview.Open(s.home, sb)
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
