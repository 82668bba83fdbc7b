package gitcommit

import (
	"context"
	"io"
	"strings"
)

// Committer returns the identity of the user with the present time, as git stores them. Errors:
// Precondition if git does not know who that is.
func (r *Repository) Committer(ctx context.Context) (string, error) {
	if err := r.checkIdentity(ctx); err != nil {
		return "", err
	}
	who, err := r.run(ctx, inRepository, nil, "-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT")
	return strings.TrimSpace(who), err
}

// Import stores the objects of a pack, of so many commits, and makes a new branch at a commit. It
// stores nothing if git finds an object that is malformed or refers to a missing one. Errors:
// Precondition with what git says.
func (r *Repository) Import(ctx context.Context, pack io.Reader, commits int, branch, commit string) error {
	take := []string{"unpack-objects", "-q", "--strict"}
	if commits >= unpackLimit {
		take = []string{"index-pack", "--stdin", "--strict"}
	}
	if _, err := r.run(ctx, inRepository, pack, take...); err != nil {
		return err
	}
	return r.makeBranch(ctx, branch, commit)
}
