package attest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/gitcommit"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
)

// check checks the form of a commit, which may be nil. Errors: Invalid.
func (c *Commit) check() error {
	if c == nil {
		return nil
	}
	dir, err := c.dir()
	branch, notWritten := vpath.Unescape(c.Branch)
	switch {
	case !gitcommit.IsID(c.ID) || c.Parent != "" && (!gitcommit.IsID(c.Parent) || len(c.Parent) != len(c.ID)):
		return errdefs.New(errdefs.Invalid, "its commit %s with the parent %s is malformed", vpath.Quote(c.ID), vpath.Quote(c.Parent))
	case c.Branch == "":
		return errdefs.New(errdefs.Invalid, "its commit %s is on no branch", c.ID)
	case notWritten != nil || vpath.Escape(branch) != c.Branch:
		return errdefs.New(errdefs.Invalid, "its commit %s: the branch %s is not escaped", c.ID, vpath.Quote(c.Branch))
	case err != nil || dir.String() != c.Dir:
		return errdefs.New(errdefs.Invalid, "its commit %s: %s is no directory of a repository", c.ID, vpath.Quote(c.Dir))
	}
	return nil
}

// dir returns the source in the repository.
func (c *Commit) dir() (vpath.Path, error) {
	raw, err := vpath.Unescape(c.Dir)
	if err != nil {
		return "", err
	}
	return vpath.Parse(raw)
}

// unnamed is how many files that were not applied CheckCommit names.
const unnamed = 20

// CheckCommit checks that a revision of the repository in which dir is names the commit of the
// statement, and that this commit has the parent of the statement and changes exactly what was
// applied. It returns what differs, one text for each path. It runs no program of the repository.
// Errors: NotFound for a commit that the repository does not have; those of gitcommit.Open.
func (st *Statement) CheckCommit(ctx context.Context, dir, revision string) (differ []string, err error) {
	c := st.Predicate.Commit
	if c == nil {
		return []string{"the statement is not about a commit: compare the files of a directory"}, nil
	}
	if dir, err = filepath.Abs(dir); err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, errdefs.New(errdefs.NotFound, "repository: %w", err)
	}
	repo, err := gitcommit.Open(ctx, dir)
	if err != nil {
		return nil, errdefs.New(errdefs.KindOf(err), "repository %s: %w", vpath.Escape(dir), err)
	}
	defer func() { err = errors.Join(err, repo.Close()) }()
	id, err := repo.Resolve(ctx, revision)
	switch {
	case err != nil:
		return nil, err
	case id != c.ID:
		return []string{fmt.Sprintf("%s is the commit %s, and the statement is about %s", vpath.Escape(revision), id, c.ID)}, nil
	}
	objects, err := repo.Objects(ctx)
	if err != nil {
		return nil, err
	}
	defer objects.Close()
	differ, err = st.compareCommit(objects)
	if errdefs.Is(err, errdefs.Invalid) {
		return append(differ, err.Error()), nil
	}
	return differ, err
}

// compareCommit returns how the commit differs from the statement.
func (st *Statement) compareCommit(objects *gitcommit.Objects) (differ []string, err error) {
	c := st.Predicate.Commit
	dir, err := c.dir()
	if err != nil {
		return nil, err
	}
	found, err := objects.Inspect(c.ID, len(st.Predicate.Changes)+unnamed)
	if err != nil {
		return nil, err
	}
	if parents := slices.DeleteFunc([]string{c.Parent}, func(id string) bool { return id == "" }); !slices.Equal(found.Parents, parents) {
		differ = append(differ, fmt.Sprintf("the commit has the parents %q, and the statement has %q", found.Parents, parents))
	}
	for i := range st.Predicate.Changes {
		p, want, err := st.Predicate.Changes[i].entry()
		if err != nil {
			return nil, err
		}
		at := p.Rebase(vpath.Root, dir).Rel()
		got, is := found.Changed[at]
		delete(found.Changed, at)
		what := "the commit does not change it"
		if is {
			if what, err = compareEntry(objects, got, want); err != nil {
				return nil, err
			}
		}
		if what != "" {
			differ = append(differ, fmt.Sprintf("%s: %s", p, what))
		}
	}
	for _, at := range slices.Sorted(maps.Keys(found.Changed)) {
		differ = append(differ, fmt.Sprintf("%s: the commit changes it, and it was not applied", vpath.Escape("/"+at)))
	}
	return differ, nil
}

// compareEntry returns how an entry of the commit's tree differs, "" if it does not. Where a
// directory replaced a file, a tree lacks the file.
func compareEntry(objects *gitcommit.Objects, got gitcommit.Entry, want manifest.Entry) (string, error) {
	mode := gitcommit.ModeOf(want.Mode)
	switch {
	case got.Mode == mode && mode == "":
		return "", nil
	case mode == "":
		return "was deleted, and the commit has it", nil
	case got.Mode == "":
		return "is not in the commit", nil
	case got.Mode != mode:
		return fmt.Sprintf("has the mode %s in the commit, not %s", got.Mode, mode), nil
	}
	sum, err := objects.Sum(got.ID)
	if err != nil {
		return "", err
	}
	expected := want.SHA256
	if mode == gitcommit.Link {
		target, err := vpath.Unescape(want.Target)
		if err != nil {
			return "", err
		}
		expected = sumOf([]byte(target))
	}
	if sum != expected {
		return "has another content in the commit", nil
	}
	return "", nil
}
