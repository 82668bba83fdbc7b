package gitcommit

import (
	"context"
	"io"
	"os"
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

// Import stores the objects of a pack, of so many commits, and makes a new branch at a commit.
// Errors: as Store.
func (r *Repository) Import(ctx context.Context, pack io.Reader, commits int, branch, commit string) error {
	if err := r.Store(ctx, pack, commits); err != nil {
		return err
	}
	return r.makeBranch(ctx, branch, commit)
}

// Store stores the objects of a pack, of so many commits, or nothing if git finds an object that is
// malformed or refers to a missing one. Errors: Precondition with what git says.
func (r *Repository) Store(ctx context.Context, pack io.Reader, commits int) error {
	take := []string{"unpack-objects", "-q", "--strict"}
	if commits >= unpackLimit {
		take = []string{"index-pack", "--stdin", "--strict"}
	}
	_, err := r.run(ctx, inRepository, pack, take...)
	return err
}

// StoreAside stores the objects of a pack where only this Repository reads them. Errors: as Store.
func (r *Repository) StoreAside(ctx context.Context, pack io.Reader) error {
	_, err := r.run(ctx, inScratch, pack, "index-pack", "--stdin", "--strict")
	return err
}

// MoveBranch moves a ref from one commit to another. git has the file held open as long as it runs,
// also if this process is killed. Errors: Precondition if the ref is at another commit, or with
// what git says.
func (r *Repository) MoveBranch(ctx context.Context, held *os.File, ref, from, to, why string) error {
	cmd := r.command(ctx, inRepository, "update-ref", "--no-deref", "-m", "agentfense: "+why, ref, to, from)
	cmd.ExtraFiles = []*os.File{held}
	return r.outcome(ctx, cmd, "update-ref")
}

// HasOtherWorkTree reports whether the repository is set to have its work tree elsewhere.
func (r *Repository) HasOtherWorkTree(ctx context.Context) (bool, error) {
	elsewhere, err := r.setting(ctx, "core.worktree")
	return elsewhere != "", err
}
