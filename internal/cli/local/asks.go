package local

import (
	"context"
	"errors"
	"io"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/granted"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// asking returns a client of a running sandbox that asks; nil if it does not run. Errors:
// Precondition if it does not ask.
func (b *Backend) asking(ctx context.Context, name string) (*api.Client, error) {
	sb, err := b.open(name)
	if err != nil {
		return nil, err
	}
	if sb.Record().Ask == nil {
		return nil, errdefs.New(errdefs.Precondition, "sandbox %[1]s: does not ask: it was made without --ask; while it is stopped: agentfense run --ask --name %[1]s …", sb.Name())
	}
	return client(ctx, sb)
}

// Asks lists what waits for an answer: nothing in a sandbox that does not run.
func (b *Backend) Asks(ctx context.Context, name string) ([]api.Ask, error) {
	live, err := b.asking(ctx, name)
	if err != nil || live == nil {
		return nil, err
	}
	return live.Asks(ctx)
}

// FollowAsks calls do with what waits for an answer until the sandbox stops.
func (b *Backend) FollowAsks(ctx context.Context, name string, do func([]api.Ask) error) error {
	live, err := b.asking(ctx, name)
	if err != nil || live == nil {
		return err
	}
	watch, err := live.WatchAsks(ctx)
	if err != nil {
		return err
	}
	defer watch.Close()
	for {
		all, err := watch.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = do(all)
		}
		if err != nil {
			return err
		}
	}
}

// AnswerAsk answers an ask.
func (b *Backend) AnswerAsk(ctx context.Context, name string, a api.Answer) error {
	if err := a.Check(); err != nil {
		return err
	}
	live, err := b.asking(ctx, name)
	if err != nil {
		return err
	}
	if live == nil {
		return errdefs.New(errdefs.NotFound, "ask %s: sandbox %s does not run, so nothing waits in it", a.ID, name)
	}
	return live.Answer(ctx, a)
}

// GrantPath grants a path, or revokes its grants. A server's sandbox is left to it. Errors:
// Precondition.
func (b *Backend) GrantPath(ctx context.Context, name string, g granted.Change) (backend.Sandbox, error) {
	sb, err := b.open(name)
	if err != nil {
		return backend.Sandbox{}, err
	}
	verb := "grant"
	if g.Permission == policy.None {
		verb = "revoke"
	}
	if err := checkUnserved(sb, verb); err != nil {
		return backend.Sandbox{}, err
	}
	if err := sb.GrantPath(g); err != nil {
		return backend.Sandbox{}, err
	}
	live, err := client(ctx, sb)
	if err == nil && live != nil {
		err = live.TakeGrants(ctx)
	}
	return backend.Sandbox{Record: sb.Record()}, err
}
