package remote

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/granted"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/server/wireconv"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// askWait is how long a call waits for a change of what waits for an answer.
const askWait = 30 * time.Second

// Asks lists what waits for an answer: nothing in a sandbox that does not run.
func (b *Backend) Asks(ctx context.Context, name string) ([]api.Ask, error) {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return nil, err
	}
	m, err := b.listAsks(ctx, &sandboxv1.ListAsksRequest{SandboxId: string(sb.Record.ID)})
	return wireconv.DecodeAsks(m), notOver(err)
}

// FollowAsks calls do with what waits for an answer until the sandbox stops.
func (b *Backend) FollowAsks(ctx context.Context, name string, do func([]api.Ask) error) error {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return err
	}
	r := &sandboxv1.ListAsksRequest{SandboxId: string(sb.Record.ID)}
	for {
		m, err := b.listAsks(ctx, r)
		if err != nil {
			return notOver(err)
		}
		if r.Wait == nil || m.Version != r.Version {
			if err := do(wireconv.DecodeAsks(m)); err != nil {
				return err
			}
		}
		r.Wait, r.Version = durationpb.New(askWait), m.Version
	}
}

func (c *Client) listAsks(ctx context.Context, r *sandboxv1.ListAsksRequest) (*sandboxv1.ListAsksResponse, error) {
	m, err := c.sandboxes.ListAsks(ctx, r)
	return m, c.failed(err)
}

// notOver returns err, but nil for a sandbox that does not run.
func notOver(err error) error {
	if errdefs.ReasonOf(err) == errdefs.SandboxNotRunning {
		return nil
	}
	return err
}

// AnswerAsk answers an ask. The server records who did.
func (b *Backend) AnswerAsk(ctx context.Context, name string, a api.Answer) error {
	if err := a.Check(); err != nil {
		return err
	}
	if a.Scope == api.ScopeProject {
		return backend.ErrNotOfProject(name)
	}
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return err
	}
	_, err = b.sandboxes.AnswerAsk(ctx, &sandboxv1.AnswerAskRequest{
		SandboxId: string(sb.Record.ID), AskId: a.ID, Allow: a.Allow, Scope: wireconv.AskScope.Encode(a.Scope),
	})
	return b.failed(err)
}

// GrantPath grants a path, or revokes its grants.
func (b *Backend) GrantPath(ctx context.Context, name string, g granted.Change) (backend.Sandbox, error) {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return backend.Sandbox{}, err
	}
	r := &sandboxv1.GrantPathRequest{
		SandboxId: string(sb.Record.ID), Path: g.Path.Text(), Directory: g.Dir, Revoke: g.Permission == policy.None,
	}
	if g.Path.IsRoot() {
		r.Path = "/"
	}
	if g.Permission != policy.None {
		r.Permission = wireconv.Permission.Encode(g.Permission)
	}
	if g.For != 0 {
		r.GrantFor = durationpb.New(g.For)
	}
	m, err := b.sandboxes.GrantPath(ctx, r)
	if err != nil {
		return backend.Sandbox{}, b.failed(err)
	}
	return sandboxOf(m)
}
