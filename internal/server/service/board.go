package service

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/board"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// boardServer answers the calls of BoardService.
type boardServer struct {
	sandboxv1.UnimplementedBoardServiceServer
	service *Service
}

// LockPaths locks paths for a sandbox. It does not outlast its caller, who would not know of the
// locks.
func (c *boardServer) LockPaths(ctx context.Context, m *sandboxv1.LockPathsRequest) (*sandboxv1.Empty, error) {
	r, err := wireconv.DecodeLockPaths(m)
	if err != nil {
		return nil, err
	}
	return c.onLive(ctx, r.Sandbox, func(live *api.Client) error {
		waiting, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.service.draining, cancel)()
		err := live.Lock(waiting, r.Lock)
		if c.service.draining.Err() != nil && err != nil {
			return errEnding()
		}
		return err
	})
}

// UnlockPaths ends locks of a sandbox.
func (c *boardServer) UnlockPaths(ctx context.Context, m *sandboxv1.UnlockPathsRequest) (*sandboxv1.Empty, error) {
	r, err := wireconv.DecodeUnlockPaths(m)
	if err != nil {
		return nil, err
	}
	return c.onLive(ctx, r.Sandbox, func(live *api.Client) error { return live.Unlock(context.WithoutCancel(ctx), r.Lock) })
}

// ListLocks lists the locks that the policy of a sandbox shows.
func (c *boardServer) ListLocks(ctx context.Context, m *sandboxv1.ListLocksRequest) (*sandboxv1.ListLocksResponse, error) {
	key, err := wireconv.SandboxID(m)
	if err != nil {
		return nil, err
	}
	var list []board.Entry
	_, err = c.onLive(ctx, key, func(live *api.Client) error {
		list, err = live.Locks(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return wireconv.EncodeLocks(list), nil
}

// PostMessage posts a message for a sandbox.
func (c *boardServer) PostMessage(ctx context.Context, m *sandboxv1.PostMessageRequest) (*sandboxv1.PostMessageResponse, error) {
	r, err := wireconv.DecodePostMessage(m)
	if err != nil {
		return nil, err
	}
	answer := &sandboxv1.PostMessageResponse{}
	_, err = c.onLive(ctx, r.Sandbox, func(live *api.Client) error {
		answer.Seq, err = live.Post(context.WithoutCancel(ctx), r.Draft)
		return err
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// onLive calls do with a client of a sandbox of the caller.
func (c *boardServer) onLive(ctx context.Context, key record.ID, do func(*api.Client) error) (*sandboxv1.Empty, error) {
	sb, err := c.service.sandbox(ctx, key)
	if err != nil {
		return nil, err
	}
	live, err := c.service.running(ctx, sb)
	if err != nil {
		return nil, err
	}
	if err := do(live); err != nil {
		if errors.Is(err, io.EOF) || !sb.HasSupervisor() {
			return nil, notRunning(sb)
		}
		return nil, err
	}
	return &sandboxv1.Empty{}, nil
}

// ReadMessages returns messages of the board of a sandbox.
func (c *boardServer) ReadMessages(ctx context.Context, m *sandboxv1.ReadMessagesRequest) (*sandboxv1.ReadMessagesResponse, error) {
	r, err := wireconv.DecodeReadMessages(m)
	if err != nil {
		return nil, err
	}
	b, err := c.board(ctx, r.Sandbox)
	if err != nil {
		return nil, err
	}
	page, err := c.messages(ctx, b, r.Query, r.Wait)
	if err != nil {
		return nil, err
	}
	return wireconv.EncodePage(page), nil
}

// messages reads messages, or waits for one until the server ends.
func (c *boardServer) messages(ctx context.Context, b *board.Board, q board.Query, wait time.Duration) (board.Page, error) {
	if wait == 0 {
		return b.Read(q)
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.service.draining, cancel)()
	page, err := b.Wait(waiting, q, wait)
	if errdefs.Is(err, errdefs.Canceled) && ctx.Err() == nil {
		return page, errEnding()
	}
	return page, err
}

// watchLook is how long a watch may go on without a look at whether its sandbox is there.
const watchLook = 10 * time.Second

// WatchMessages sends messages until the client disconnects or the sandbox is destroyed.
func (c *boardServer) WatchMessages(m *sandboxv1.WatchMessagesRequest, to sandboxv1.BoardService_WatchMessagesServer) error {
	ctx := to.Context()
	r, err := wireconv.DecodeWatchMessages(m)
	if err != nil {
		return err
	}
	b, err := c.board(ctx, r.Sandbox)
	if err != nil {
		return err
	}
	err = to.SendHeader(nil)
	for err == nil {
		var page board.Page
		page, err = c.messages(ctx, b, r.Query, watchLook)
		if err == nil && (len(page.Messages) > 0 || page.Lost > 0) {
			err = to.Send(wireconv.EncodePage(page))
		}
		if err != nil {
			break
		}
		r.Query.After = page.Next
		if b, err = c.board(ctx, r.Sandbox); errdefs.Is(err, errdefs.NotFound) {
			return nil
		}
	}
	return cmp.Or(ctx.Err(), err)
}

// GetBoard tells who uses the board of a sandbox.
func (c *boardServer) GetBoard(ctx context.Context, m *sandboxv1.GetBoardRequest) (*sandboxv1.Board, error) {
	key, err := wireconv.SandboxID(m)
	if err != nil {
		return nil, err
	}
	b, err := c.board(ctx, key)
	if err != nil {
		return nil, err
	}
	state, err := b.State()
	if err != nil {
		return nil, err
	}
	return wireconv.EncodeBoard(state), nil
}

// board returns the board of a sandbox of the caller. Only sandboxes of the same owner share it.
func (c *boardServer) board(ctx context.Context, key record.ID) (*board.Board, error) {
	sb, err := c.service.sandbox(ctx, key)
	if err != nil {
		return nil, err
	}
	r := sb.Record()
	return board.Open(c.service.home, &r), nil
}
