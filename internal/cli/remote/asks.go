package remote

import (
	"context"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/granted"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Asks is not possible.
func (b *Backend) Asks(context.Context, string) ([]api.Ask, error) { return nil, localOnly("ask") }

// FollowAsks is not possible either.
func (b *Backend) FollowAsks(context.Context, string, func([]api.Ask) error) error {
	return localOnly("ask")
}

// AnswerAsk is not possible either.
func (b *Backend) AnswerAsk(context.Context, string, api.Answer) error { return localOnly("answer") }

// GrantPath is not possible.
func (b *Backend) GrantPath(_ context.Context, name string, g granted.Change) (backend.Sandbox, error) {
	return backend.Sandbox{}, errdefs.New(errdefs.Unsupported, "grants of a path work only on this host, not on a server: use agentfense policy set %s --%s %s",
		name, max(g.Permission, policy.View), policy.QuoteForShell(g.Path.Rel()))
}
