package remote

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/sandbox/board"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// Lock locks paths of the codebase for a sandbox.
func (b *Backend) Lock(ctx context.Context, name string, r api.LockRequest) error {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return err
	}
	_, err = b.boards.LockPaths(ctx, wireconv.EncodeLockPaths(wireconv.LockPaths{Sandbox: sb.Record.ID, Lock: r}))
	return b.failed(err)
}

// Unlock ends locks of a sandbox.
func (b *Backend) Unlock(ctx context.Context, name string, r api.LockRequest) error {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return err
	}
	_, err = b.boards.UnlockPaths(ctx, wireconv.EncodeUnlockPaths(wireconv.LockPaths{Sandbox: sb.Record.ID, Lock: r}))
	return b.failed(err)
}

// Locks lists the locks of the codebase that the policy of a sandbox shows.
func (b *Backend) Locks(ctx context.Context, name, _ string) ([]board.Entry, error) {
	return b.ShownLocks(ctx, name)
}

// ShownLocks lists the locks of the codebase that the policy of a sandbox shows.
func (b *Backend) ShownLocks(ctx context.Context, name string) ([]board.Entry, error) {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return nil, err
	}
	m, err := b.boards.ListLocks(ctx, &sandboxv1.ListLocksRequest{SandboxId: string(sb.Record.ID)})
	return wireconv.DecodeLocks(m), b.failed(err)
}

// PostMessage posts a message for a sandbox.
func (b *Backend) PostMessage(ctx context.Context, name string, d board.Draft) (uint64, error) {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return 0, err
	}
	m, err := b.boards.PostMessage(ctx, wireconv.EncodePostMessage(wireconv.PostMessage{Sandbox: sb.Record.ID, Draft: d}))
	return m.GetSeq(), b.failed(err)
}

// Messages returns messages of the codebase of a sandbox.
func (b *Backend) Messages(ctx context.Context, name, _ string, q board.Query, wait time.Duration) (board.Page, error) {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return board.Page{}, err
	}
	r := &sandboxv1.ReadMessagesRequest{SandboxId: string(sb.Record.ID), After: q.After, Topic: q.Topic, Limit: int32(q.Limit)}
	if wait > 0 {
		r.Wait = durationpb.New(min(wait, wireconv.MaxMessageWait))
	}
	m, err := b.boards.ReadMessages(ctx, r)
	return wireconv.DecodePage(m), b.failed(err)
}

// BoardState tells who uses the codebase of a sandbox.
func (b *Backend) BoardState(ctx context.Context, name, _ string) (board.State, error) {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return board.State{}, err
	}
	m, err := b.boards.GetBoard(ctx, &sandboxv1.GetBoardRequest{SandboxId: string(sb.Record.ID)})
	return wireconv.DecodeBoard(m), b.failed(err)
}
