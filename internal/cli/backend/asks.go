package backend

import (
	"context"

	"github.com/agentfense/agentfense/internal/sandbox/granted"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// Asks answers what a sandbox asks, and grants paths to it. Errors of every method: NotFound for
// the sandbox.
type Asks interface {
	// Asks lists what waits for an answer, the oldest first. Errors: Precondition if the sandbox
	// does not ask.
	Asks(ctx context.Context, name string) ([]api.Ask, error)
	// FollowAsks calls do with the list, at once and after each change, until the sandbox
	// stops or do returns an error. Errors: as Asks, and that of do.
	FollowAsks(ctx context.Context, name string, do func([]api.Ask) error) error
	// AnswerAsk answers an ask. Errors: NotFound if it waits no longer; Precondition; Invalid.
	AnswerAsk(ctx context.Context, name string, a api.Answer) error

	// GrantPath gives a path of the workspace a permission that it lacks, or takes such grants
	// back, in a running sandbox at once. It returns the sandbox as it is then. Errors:
	// Invalid; NotFound for a grant to revoke.
	GrantPath(ctx context.Context, name string, g granted.Change) (Sandbox, error)
}
