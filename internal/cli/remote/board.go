package remote

import (
	"context"
	"time"

	"github.com/agentfense/agentfense/internal/sandbox/board"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// Lock is not possible: the server has no call for it.
func (b *Backend) Lock(context.Context, string, api.LockRequest) error { return localOnly("") }

// Unlock is not possible: the server has no call for it.
func (b *Backend) Unlock(context.Context, string, api.LockRequest) error { return localOnly("") }

// Locks is not possible: the server has no call for it.
func (b *Backend) Locks(context.Context, string, string) ([]board.Entry, error) {
	return nil, localOnly("")
}

// ShownLocks is not possible: the server has no call for it.
func (b *Backend) ShownLocks(context.Context, string) ([]board.Entry, error) {
	return nil, localOnly("")
}

// PostMessage is not possible: the server has no call for it.
func (b *Backend) PostMessage(context.Context, string, board.Draft) (uint64, error) {
	return 0, localOnly("")
}

// Messages is not possible: the server has no call for it.
func (b *Backend) Messages(context.Context, string, string, board.Query, time.Duration) (board.Page, error) {
	return board.Page{}, localOnly("")
}

// BoardState is not possible: the server has no call for it.
func (b *Backend) BoardState(context.Context, string, string) (board.State, error) {
	return board.State{}, localOnly("")
}
