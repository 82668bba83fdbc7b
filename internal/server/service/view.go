package service

import (
	"context"

	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/sandbox/readview"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// ListView lists a directory of a sandbox's view. A page token is the last path of the page before.
func (c *sandboxServer) ListView(ctx context.Context, m *sandboxv1.ListViewRequest) (*sandboxv1.ListViewResponse, error) {
	r, err := wireconv.DecodeListView(m)
	if err != nil {
		return nil, err
	}
	view, err := c.service.view(ctx, r.MountPath)
	if err != nil {
		return nil, err
	}
	defer view.Close()
	if r.Itself {
		entry, err := view.Stat(r.Path)
		if err != nil {
			return nil, err
		}
		return &sandboxv1.ListViewResponse{Entries: []*sandboxv1.ViewEntry{wireconv.EncodeViewEntry(entry)}}, nil
	}
	answer := &sandboxv1.ListViewResponse{}
	size := 0
	for entry, err := range view.ListAfter(r.Path, r.Page.After) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		e := wireconv.EncodeViewEntry(entry)
		size += proto.Size(e) + pageFrame
		if n := len(answer.Entries); n > 0 && (n == r.Page.Size || size+len(e.Path) > maxResultBytes) {
			answer.NextPageToken = answer.Entries[n-1].Path
			break
		}
		answer.Entries = append(answer.Entries, e)
	}
	return answer, nil
}

// pageFrame is the size of the tag and the length of an entry of a page.
const pageFrame = 16

// ReadView sends a file of a sandbox's view in pieces.
func (c *sandboxServer) ReadView(m *sandboxv1.ReadViewRequest, to sandboxv1.SandboxService_ReadViewServer) error {
	r, err := wireconv.DecodeReadView(m)
	if err != nil {
		return err
	}
	view, err := c.service.view(to.Context(), r)
	if err != nil {
		return err
	}
	defer view.Close()
	return view.Copy(viewSender{to}, r.Path)
}

// view opens a sandbox's view, or that of a mount. The caller closes it.
func (s *Service) view(ctx context.Context, of wireconv.MountPath) (*readview.View, error) {
	sb, err := s.sandboxToRead(ctx, of)
	switch {
	case err != nil:
		return nil, err
	case of.Mount != "":
		return readview.OpenMount(sb, of.Mount)
	}
	return readview.Open(s.home, sb)
}

// sandboxToRead returns a sandbox of the caller. Errors: as sandbox; NotFound for a name that no
// mount has; Denied for a mount of which the source may no longer be shown.
func (s *Service) sandboxToRead(ctx context.Context, of wireconv.MountPath) (*record.Sandbox, error) {
	sb, err := s.sandbox(ctx, of.Sandbox)
	if err != nil || of.Mount == "" {
		return sb, err
	}
	if _, err := sb.MountNamed(of.Mount); err != nil {
		return nil, err
	}
	return sb, s.permitRead(sb, of.Mount)
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
