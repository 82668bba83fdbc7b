package local

import (
	"context"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/sandbox/branch"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

// UnsavedBranches counts what has commits that are nowhere else.
func (b *Backend) UnsavedBranches(_ context.Context, name string) (int, error) {
	sb, err := b.open(name)
	if err != nil {
		return 0, err
	}
	return review.UnsavedBranches(sb), nil
}

// Commits lists the commits of a sandbox.
func (b *Backend) Commits(ctx context.Context, name string, again []string) (branch.Listing, error) {
	sb, err := b.Readable(ctx, name, "", again)
	if err != nil {
		return branch.Listing{}, err
	}
	return branch.List(ctx, sb)
}

// ApplyCommits makes the commits of a sandbox anew in its source.
func (b *Backend) ApplyCommits(ctx context.Context, name string, o backend.CommitsOptions) (*branch.AppliedCommits, error) {
	sb, err := b.Readable(ctx, name, "", o.Again)
	if err != nil {
		return nil, err
	}
	r, err := branch.Commits(ctx, sb, o.CommitsOptions)
	if r == nil {
		return nil, err
	}
	return branch.Describe(r, o.DryRun), err
}
