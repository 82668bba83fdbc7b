package remote

import (
	"context"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/branch"
	"github.com/agentfense/agentfense/internal/server/wireconv"
	"github.com/agentfense/agentfense/internal/transfer/stream"
)

// commitsPage is how many commits a page has at most. For each page the server reads the repository
// of the sandbox.
const commitsPage = 1000

// UnsavedBranches counts what has commits that are nowhere else.
func (b *Backend) UnsavedBranches(ctx context.Context, name string) (int, error) {
	sb, err := b.Sandbox(ctx, name)
	return sb.UnsavedBranches, err
}

// Commits lists the commits of a sandbox.
func (b *Backend) Commits(ctx context.Context, name string, _ []string) (l branch.Listing, err error) {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return l, err
	}
	r := &sandboxv1.ListCommitsRequest{SandboxId: string(sb.Record.ID), PageSize: commitsPage}
	for {
		page, err := b.sandboxes.ListCommits(ctx, r)
		if err != nil {
			return l, b.failed(err)
		}
		l.Source = vpath.Escape(page.SourceCommit)
		for _, c := range page.Commits {
			l.Commits = append(l.Commits, wireconv.DecodeCommit(c))
		}
		if r.PageToken, err = stream.NextPage(r.PageToken, page.NextPageToken); err != nil || r.PageToken == "" {
			return l, err
		}
	}
}

// ApplyCommits makes the commits of a sandbox anew in the linked codebase.
func (b *Backend) ApplyCommits(ctx context.Context, name string, o backend.CommitsOptions) (*branch.AppliedCommits, error) {
	by, err := b.committer()
	if err != nil {
		return nil, err
	}
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return nil, err
	}
	r := &sandboxv1.ApplyCommitsRequest{
		SandboxId: string(sb.Record.ID), ToBranch: o.Branch, FromBranch: vpath.EncodeText(o.From), AtBase: o.AtBase,
		ReviewedCommit: o.Reviewed, DryRun: o.DryRun, GitUser: by,
	}
	answer, err := b.sandboxes.ApplyCommits(ctx, r)
	if err = b.failed(err); errdefs.Is(err, errdefs.Precondition) && !r.DryRun {
		r.DryRun = true
		if planned, dryErr := b.sandboxes.ApplyCommits(ctx, r); dryErr == nil && planned.RefusedCount > 0 {
			return wireconv.DecodeAppliedCommits(planned), err
		}
	}
	if err != nil {
		return nil, err
	}
	done := wireconv.DecodeAppliedCommits(answer)
	if done.TotalRefused > 0 {
		err = errdefs.New(errdefs.Precondition, "sandbox %s: nothing was committed, because some paths stop it", sb.Record.Name)
	}
	return done, err
}
