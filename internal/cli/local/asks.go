package local

import (
	"context"
	"errors"
	"io"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/granted"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// asking returns a sandbox that asks. Errors: Precondition if it does not.
func (b *Backend) asking(name string) (*record.Sandbox, error) {
	sb, err := b.open(name)
	if err != nil {
		return nil, err
	}
	if sb.Record().Ask == nil {
		return nil, errdefs.New(errdefs.Precondition, "sandbox %[1]s: does not ask: it was made without --ask; while it is stopped: agentfense run --ask --name %[1]s …", sb.Name())
	}
	return sb, nil
}

// Asks lists what waits for an answer: nothing in a sandbox that does not run.
func (b *Backend) Asks(ctx context.Context, name string) ([]api.Ask, error) {
	sb, err := b.asking(name)
	if err != nil {
		return nil, err
	}
	var all []api.Ask
	err = ifRunning(ctx, sb, func(live *api.Client) (err error) { all, err = live.Asks(ctx); return err })
	return all, err
}

// FollowAsks calls do with what waits for an answer until the sandbox stops.
func (b *Backend) FollowAsks(ctx context.Context, name string, do func([]api.Ask) error) error {
	sb, err := b.asking(name)
	if err != nil {
		return err
	}
	live, err := client(ctx, sb)
	if err != nil || live == nil {
		return err
	}
	watch, err := live.WatchAsks(ctx)
	if errdefs.Is(err, errdefs.NotFound) {
		return nil // it has just ended
	}
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
	sb, err := b.asking(name)
	if err != nil {
		return err
	}
	if a.Scope == api.ScopeProject && sb.Record().Served != nil {
		return backend.ErrNotOfProject(name)
	}
	live, err := client(ctx, sb)
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
	err = ifRunning(ctx, sb, func(live *api.Client) error { return live.TakeGrants(ctx) })
	return backend.Sandbox{Record: sb.Record()}, err
}
