package remote

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// Changes calls put with each change at and below the paths, parents first, and of
// a regular file with its content. Those that are not what the digest reviewed
// names come without a content. Errors: those of put; NotFound as of Apply.
func (c *Client) Changes(ctx context.Context, s backend.Sandbox, paths []vpath.Path, reviewed string, put func(apply.CarriedChange, io.Reader) error) error {
	ctx, cancel := context.WithCancel(ctx) // ends the stream if put fails
	defer cancel()
	r := &sandboxv1.ReadChangesRequest{SandboxId: string(s.Record.ID), Mount: s.Mount, Paths: wireconv.EncodeSelection(paths), ReviewedDigest: reviewed}
	stream, err := c.sandboxes.ReadChanges(ctx, r)
	if err != nil {
		return c.failed(err)
	}
	from := &carriedStream{stream: stream, failed: c.failed}
	for from.next(); from.err == nil; {
		header := from.message.GetChange()
		if header == nil {
			return errdefs.New(errdefs.Internal, "server sent an invalid stream of changes")
		}
		change, err := wireconv.DecodeChange(header)
		if err != nil {
			return err
		}
		from.path, from.left = change.Path, change.SizeBytes
		from.next()
		if err := put(change, from); err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, from); err != nil { // what put has left
			return err
		}
	}
	if errors.Is(from.err, io.EOF) {
		return nil
	}
	return from.err
}

// carriedStream reads the pieces of one content, up to the next header.
type carriedStream struct {
	stream  grpc.ServerStreamingClient[sandboxv1.ReadChangesResponse]
	failed  func(error) error
	message *sandboxv1.ReadChangesResponse
	path    vpath.Path
	left    int64  // of what was announced of the content
	rest    []byte // of a piece
	err     error  // io.EOF behind the last message
}

// next receives a message.
func (s *carriedStream) next() {
	s.message, s.err = s.stream.Recv()
	if s.err != nil && !errors.Is(s.err, io.EOF) {
		s.err = s.failed(s.err)
	}
	s.rest = s.message.GetData()
}

// Read reads the content.
func (s *carriedStream) Read(b []byte) (int, error) {
	for {
		switch {
		case s.err != nil:
			return 0, s.err
		case s.message.GetChange() != nil:
			return 0, io.EOF
		case len(s.rest) > 0:
			n := copy(b, s.rest)
			s.rest = s.rest[n:]
			if s.left -= int64(n); s.left < 0 {
				s.err = errdefs.New(errdefs.Internal, "server sent more of %s than it announced", s.path)
				return 0, s.err
			}
			return n, nil
		}
		s.next()
	}
}
