package local

import (
	"context"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/sandbox/cleangit"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// cleanGit makes the clean repository of a new sandbox, and returns what places it in the
// directory of the sandbox; nil for a sandbox that sees the source's. Errors: those of
// cleangit.Cache.Make.
func (b *Backend) cleanGit(ctx context.Context, n backend.NewSandbox) (fill func(dir string) error, err error) {
	if !n.Git.IsClean() {
		return nil, nil
	}
	reserved, err := b.home.Reserved(n.Source)
	if err != nil {
		return nil, err
	}
	p, err := policy.Compile(n.Rules.Rules, policy.Options{Reserved: reserved})
	if err != nil {
		return nil, err
	}
	source, err := n.Source.Open()
	if err != nil {
		return nil, err
	}
	defer source.Close()
	made, err := cleangit.CacheIn(b.home.Dir()).Make(ctx, source, n.Git, p)
	if err != nil {
		return nil, err
	}
	return made.Fill, nil
}

// UnsavedBranches counts what has commits that are nowhere else.
func (b *Backend) UnsavedBranches(_ context.Context, name string) (int, error) {
	sb, err := b.open(name)
	if err != nil {
		return 0, err
	}
	return review.UnsavedBranches(sb), nil
}
