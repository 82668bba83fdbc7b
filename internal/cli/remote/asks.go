package remote

import (
	"context"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/sandbox/granted"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// Asks is not possible.
func (b *Backend) Asks(context.Context, string) ([]api.Ask, error) { return nil, localOnly("ask") }

// FollowAsks is not possible either.
func (b *Backend) FollowAsks(context.Context, string, func([]api.Ask) error) error {
	return localOnly("ask")
}

// AnswerAsk is not possible either.
func (b *Backend) AnswerAsk(context.Context, string, api.Answer) error { return localOnly("answer") }

// GrantPath is not possible: policy set does that.
func (b *Backend) GrantPath(context.Context, string, granted.Change) (backend.Sandbox, error) {
	return backend.Sandbox{}, localOnly("path")
}
