package backend

import (
	"context"
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
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
	// AnswerAsk answers an ask. Errors: NotFound if it waits no longer; Precondition, also for
	// api.ScopeProject in a sandbox of a server; Invalid.
	AnswerAsk(ctx context.Context, name string, a api.Answer) error

	// GrantPath gives a path of the workspace a permission that it lacks, or takes such grants
	// back, in a running sandbox at once. It returns the sandbox as it is then. Errors:
	// Invalid; NotFound for a grant to revoke.
	GrantPath(ctx context.Context, name string, g granted.Change) (Sandbox, error)
}

// AnswerShown answers the ask that a person or a program was shown, and no other one that has its
// number by now. Errors: as AnswerAsk.
func AnswerShown(ctx context.Context, b Asks, name string, shown api.Ask, a api.Answer) error {
	now, err := b.Asks(ctx, name)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(now, shown.IsSame) {
		return errdefs.New(errdefs.NotFound, "ask %s: waits no longer: it was answered, its time is over, or the program went on", shown.ID)
	}
	a.ID = shown.ID
	return b.AnswerAsk(ctx, name, a)
}

// ErrNotOfProject refuses an answer for a project in a sandbox of a server.
func ErrNotOfProject(name string) error {
	return errdefs.New(errdefs.Precondition, "sandbox %s is a server's: an answer cannot be stored for its project; answer for the sandbox", name)
}
