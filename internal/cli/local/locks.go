package local

import (
	"context"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/board"
	"github.com/agentfense/agentfense/internal/sandbox/record"
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

// onLive calls do with a client of a sandbox that runs and is no server's. If none answers, it
// reads the record, for an error that tells why.
func (b *Backend) onLive(ctx context.Context, name string, do func(*api.Client) error) error {
	if record.CheckName(name) == nil {
		if err := do(api.LocalAt(b.home.DirOf(name))); !errdefs.Is(err, errdefs.NotFound) {
			return err
		}
	}
	sb, err := b.open(name)
	if err != nil {
		return err
	}
	if sb.Record().Served != nil {
		return errdefs.New(errdefs.Precondition, "sandbox %s: managed by a server: name the server with --endpoint", sb.Name())
	}
	live, err := client(ctx, sb)
	if err != nil {
		return err
	}
	if live == nil {
		return errdefs.New(errdefs.Precondition, "sandbox %[1]s: does not run, and only a sandbox that runs has locks and posts messages; start it: agentfense run --detach --name %[1]s", sb.Name())
	}
	return do(live)
}

// Locks lists the locks of the source of a sandbox, or of the source dir if name is "".
func (b *Backend) Locks(_ context.Context, name, dir string) ([]board.Entry, error) {
	at, err := b.board(name, dir)
	if err != nil {
		return nil, err
	}
	t, err := at.Locks()
	return t.Entries(board.Holder{}), err
}

// ShownLocks lists the locks that the policy of a sandbox shows: none if it does not run.
func (b *Backend) ShownLocks(ctx context.Context, name string) (list []board.Entry, err error) {
	err = b.onLive(ctx, name, func(live *api.Client) error {
		list, err = live.Locks(ctx)
		return err
	})
	return list, err
}

// PostMessage posts a message for a sandbox that runs.
func (b *Backend) PostMessage(ctx context.Context, name string, d board.Draft) (seq uint64, err error) {
	err = b.onLive(ctx, name, func(live *api.Client) error {
		seq, err = live.Post(ctx, d)
		return err
	})
	return seq, err
}

// Messages returns messages of the source of a sandbox, or of the source dir if name is "".
func (b *Backend) Messages(ctx context.Context, name, dir string, q board.Query, wait time.Duration) (board.Page, error) {
	at, err := b.board(name, dir)
	if err != nil {
		return board.Page{}, err
	}
	if wait > 0 {
		return at.Wait(ctx, q, wait)
	}
	return at.Read(q)
}

// BoardState tells who uses the source of a sandbox, or the source dir if name is "".
func (b *Backend) BoardState(_ context.Context, name, dir string) (board.State, error) {
	at, err := b.board(name, dir)
	if err != nil {
		return board.State{}, err
	}
	return at.State()
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
