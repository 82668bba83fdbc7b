package local

import (
	"context"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/board"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// Lock locks paths of the source for a sandbox that runs. Errors: Precondition if it does not; as
// api.Client.Lock.
func (b *Backend) Lock(ctx context.Context, name string, r api.LockRequest) error {
	return b.onLive(ctx, name, func(live *api.Client) error { return live.Lock(ctx, r) })
}

// Unlock ends locks of a sandbox. Errors: Precondition if it does not run; NotFound.
func (b *Backend) Unlock(ctx context.Context, name string, r api.LockRequest) error {
	return b.onLive(ctx, name, func(live *api.Client) error { return live.Unlock(ctx, r) })
}

// onLive calls do with a client of a sandbox that runs and is no server's.
func (b *Backend) onLive(ctx context.Context, name string, do func(*api.Client) error) error {
	sb, err := b.open(name)
	if err != nil {
		return err
	}
	if sb.Record().Served != nil {
		return errdefs.New(errdefs.Precondition, "sandbox %s: managed by a server: paths can be locked for sandboxes of this host only", sb.Name())
	}
	live, err := client(ctx, sb)
	if err != nil {
		return err
	}
	if live == nil {
		return errdefs.New(errdefs.Precondition, "sandbox %[1]s: does not run, and a lock lasts while its sandbox runs; start it: agentfense run --detach --name %[1]s", sb.Name())
	}
	return do(live)
}

// Source returns the sandbox with the name, for what belongs to its source.
func (b *Backend) Source(name string) (backend.Sandbox, error) {
	sb, err := b.open(name)
	if err != nil {
		return backend.Sandbox{}, err
	}
	return backend.Sandbox{Record: sb.Record()}, nil
}

// Locks lists the locks of the source of a sandbox, or of the source dir if name is "".
func (b *Backend) Locks(name, dir string) (board.Table, error) {
	at, err := b.board(name, dir)
	if err != nil {
		return board.Table{}, err
	}
	return at.Locks()
}

// board returns the board of a sandbox, or of the source dir if name is "".
func (b *Backend) board(name, dir string) (*board.Board, error) {
	if name != "" {
		sb, err := b.open(name)
		if err != nil {
			return nil, err
		}
		rec := sb.Record()
		return board.Open(b.home, &rec), nil
	}
	source, err := b.home.ResolveSource(dir)
	if err != nil {
		return nil, err
	}
	return board.Of(b.home, source, ""), nil
}
