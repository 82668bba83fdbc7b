package backend

import (
	"context"
	"time"

	"github.com/agentfense/agentfense/internal/sandbox/board"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// Board is what the sandboxes of one source share: locks of paths, and messages. On this host a
// name of "" stands for the directory dir as a source.
//
// Errors of every method: NotFound for the sandbox. Of those that act for a sandbox: Precondition
// if it does not run.
type Board interface {
	// Lock locks paths of the source for a sandbox. Errors: as api.Client.Lock.
	Lock(ctx context.Context, name string, r api.LockRequest) error
	// Unlock ends locks of a sandbox. Errors: NotFound.
	Unlock(ctx context.Context, name string, r api.LockRequest) error
	// Locks lists the locks for a person; of a server those that the policy of the sandbox shows.
	Locks(ctx context.Context, name, dir string) ([]board.Entry, error)
	// ShownLocks lists the locks for an agent: those that the policy of the sandbox shows.
	ShownLocks(ctx context.Context, name string) ([]board.Entry, error)
	// PostMessage posts a message for a sandbox and returns its number. Errors: Invalid; Exhausted.
	PostMessage(ctx context.Context, name string, d board.Draft) (uint64, error)
	// Messages returns messages. With a time it waits for one if there is none. Errors: Invalid.
	Messages(ctx context.Context, name, dir string, q board.Query, wait time.Duration) (board.Page, error)
	// BoardState tells which sandboxes run, what they work on, and which topics there are.
	BoardState(ctx context.Context, name, dir string) (board.State, error)
}
