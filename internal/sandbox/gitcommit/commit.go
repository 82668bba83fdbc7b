package gitcommit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Commit makes a commit of the tree of HEAD with the changes, whose zero Entry is a deletion, on a
// new branch, and returns its id. A dry run leaves the repository as it is. Errors: Precondition
// with what git says, also without an identity; Exists.
func (r *Repository) Commit(ctx context.Context, changes map[string]Entry, branch, message string, dryRun bool) (commit string, err error) {
	if err := r.checkIdentity(ctx); err != nil {
		return "", err
	}
	var list strings.Builder
	for path, e := range changes {
		if e == (Entry{}) {
			fmt.Fprintf(&list, "0 %s\t%s\x00", r.zero, path)
		}
	}
	for path, e := range changes {
		if e != (Entry{}) {
			fmt.Fprintf(&list, "%s %s\t%s\x00", e.Mode, e.ID, path)
		}
	}
	if _, err := r.run(ctx, inScratch, strings.NewReader(list.String()), "update-index", "-z", "--add", "--index-info"); err != nil {
		return "", err
	}
	tree, err := r.run(ctx, inScratch, nil, "write-tree", "--missing-ok")
	if err != nil {
		return "", err
	}
	args := []string{"commit-tree", strings.TrimSpace(tree), "-F", "-"}
	if r.head != "" {
		args = append(args, "-p", r.head)
	}
	commit, err = r.run(ctx, inScratch, strings.NewReader(message), args...)
	if commit = strings.TrimSpace(commit); err != nil || dryRun {
		return commit, err
	}
	if err := r.move(ctx, commit, len(changes)); err != nil {
		return "", err
	}
	if err := r.makeBranch(ctx, branch, commit); err != nil {
		return "", err
	}
	return commit, nil
}

// makeBranch makes a branch that does not exist yet.
func (r *Repository) makeBranch(ctx context.Context, branch, commit string) error {
	_, err := r.run(ctx, inRepository, nil, "update-ref", "-m", "agentfense: apply", "refs/heads/"+branch, commit, r.zero)
	if err != nil {
		return fmt.Errorf("branch %s: %w", vpath.Quote(branch), err)
	}
	return nil
}

// checkIdentity refuses a commit by nobody. Errors: Precondition.
func (r *Repository) checkIdentity(ctx context.Context) error {
	for _, who := range []string{"GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"} {
		if _, err := r.run(ctx, inRepository, nil, "-c", "user.useConfigOnly=true", "var", who); err != nil {
			return errdefs.New(errdefs.Precondition, "git does not know who you are: set it with git config --global user.name and git config --global user.email")
		}
	}
	return nil
}

// From unpackLimit changed files on, a commit is stored as a pack (transfer.unpackLimit,
// git-config(1)).
const unpackLimit = 100

// move brings what the commit adds to HEAD into the repository.
func (r *Repository) move(ctx context.Context, commit string, files int) error {
	take := []string{"unpack-objects", "-q"}
	if files >= unpackLimit {
		take = []string{"index-pack", "--stdin"}
	}
	give := r.command(ctx, inScratch, "pack-objects", "--revs", "--stdout", "-q")
	revisions := commit + "\n"
	if r.head != "" {
		revisions += "^" + r.head + "\n"
	}
	var complaint bytes.Buffer
	give.Stdin, give.Stderr = strings.NewReader(revisions), &complaint
	pack, err := give.StdoutPipe()
	if err == nil {
		err = give.Start()
	}
	if err != nil {
		return hostError(err)
	}
	_, err = r.run(ctx, inRepository, pack, take...)
	_, _ = io.Copy(io.Discard, pack) // lets it end
	return errors.Join(failed(ctx, give.Wait(), "pack-objects", complaint.String()), err)
}
