package service

import (
	"cmp"
	"context"
	"errors"
	"io"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// WatchView sends the changes in a running sandbox's view.
func (c *sandboxServer) WatchView(m *sandboxv1.WatchViewRequest, to sandboxv1.SandboxService_WatchViewServer) error {
	s := c.service
	ctx, cancel := context.WithCancel(to.Context())
	defer cancel()
	r, err := wireconv.DecodeWatchView(m)
	if err != nil {
		return err
	}
	sb, err := s.sandboxToRead(ctx, r.MountPath)
	if err != nil {
		return err
	}
	watch, err := api.At(sb.Dir()).Watch(ctx, r.Mount, r.Path, r.Recursive)
	if errdefs.Is(err, errdefs.NotFound) {
		return notRunning(sb)
	}
	if err != nil {
		return cmp.Or(to.Context().Err(), err)
	}
	defer watch.Close()
	defer context.AfterFunc(s.draining, cancel)()
	err = to.SendHeader(nil)
	for err == nil {
		var told api.Watched
		if told, err = watch.Next(ctx); err == nil {
			err = to.Send(&sandboxv1.WatchViewResponse{Changes: wireconv.EncodeChanged(told.Changes), Lost: told.Lost})
		}
	}
	switch {
	case s.draining.Err() != nil:
		return errEnding()
	case errors.Is(err, io.EOF):
		return nil
	}
	return cmp.Or(to.Context().Err(), err)
}
