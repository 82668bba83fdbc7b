package backend

import (
	"context"

	"github.com/agentfense/agentfense/internal/sandbox/branch"
)

// Commits are what commands commit in the clean repository of a sandbox. A server makes one of a
// linked codebase.
type Commits interface {
	// UnsavedBranches counts what has commits, in a clean repository of a sandbox, that are nowhere
	// else.
	UnsavedBranches(ctx context.Context, name string) (int, error)
	// Commits lists the commits. Where this process may not read all files of the sandbox, it does
	// as Changes, with the command line again. Errors: those of branch.List.
	Commits(ctx context.Context, name string, again []string) (branch.Listing, error)
	// ApplyCommits makes the commits anew in the source's repository. If something stops it, the
	// result says what, beside the error. Errors: those of branch.Commits.
	ApplyCommits(ctx context.Context, name string, o CommitsOptions) (*branch.AppliedCommits, error)
}

// CommitsOptions are those of branch.Commits. For a server, it finds the committer itself.
type CommitsOptions struct {
	branch.CommitsOptions
	Again []string // the command line
}
