package branch

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/cleangit"
	"github.com/agentfense/agentfense/internal/sandbox/gitcommit"
	"github.com/agentfense/agentfense/internal/sandbox/gitconfig"
	"github.com/agentfense/agentfense/internal/sandbox/gitindex"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/transplant"
)

// CommitsOptions say which commits of a sandbox to take, and where.
type CommitsOptions struct {
	From     string // the branch of the sandbox; "" for the one that is checked out
	Branch   string // that does not exist yet, of the source
	AtBase   bool   // begin it at the commit of which the clean repository was made
	Reviewed string // the last commit must be this one; "" for any
	DryRun   bool
	// For is a user of a server, who is the committer; nil for the caller. git then neither reads
	// nor writes anything outside of the source, and Commits waits for the source's lock.
	For *gitconfig.User
}

// Take takes the commits out of a sandbox's clean repository. Close the result. Errors: those of
// transplant.TakeOut; Precondition for a sandbox without one.
func Take(ctx context.Context, s *record.Sandbox) (*transplant.Taken, error) {
	if !s.Stored.Git.IsClean() {
		return nil, errdefs.New(errdefs.Precondition, "sandbox %[1]s: it has no repository of its own, because it was not made with --git=clean; its changes: agentfense diff %[1]s", s.Name())
	}
	source, _, err := s.SourceToRead()
	if err != nil {
		return nil, err
	}
	defer source.Close()
	t, err := transplant.TakeOut(ctx, cleangit.StoreIn(s.Dir()), source)
	if err != nil {
		return nil, errdefs.New(errdefs.KindOf(err), "sandbox %s: %w", s.Name(), err)
	}
	return t, nil
}

// Judge says what becomes of the paths of commits under the policies of the sandbox.
func Judge(w *changes.Work) func(name string) (v transplant.Verdict, why string) {
	return func(name string) (transplant.Verdict, string) {
		p, ok := gitindex.TrackedPath(vpath.Root, name)
		isGit := func(element string) bool { return strings.EqualFold(element, ".git") }
		switch {
		case !ok || slices.ContainsFunc(strings.Split(name, "/"), isGit):
			return transplant.Refuse, "no commit may have a file of this name"
		case w.WasHidden(p):
			return transplant.Drop, "the policy hides it"
		case !w.MayWrite(p):
			return transplant.Refuse, "the policy lets commands read it, and not write it"
		}
		return transplant.Take, ""
	}
}

// Commits makes the commits of a sandbox anew on a new branch of the source's repository. The
// result says what was left out, and what stops it, also beside an error. Errors: Precondition;
// Exists, Invalid for a branch; NotFound for one of the sandbox; those of Take.
func Commits(ctx context.Context, s *record.Sandbox, o CommitsOptions) (result *transplant.Transplanted, err error) {
	w, err := changes.OpenToRead(s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	repo, end, err := openFor(ctx, s, o.For)
	if err != nil {
		return nil, errdefs.New(errdefs.KindOf(err), "apply commits of %s: %w", s.Ref(), err)
	}
	defer func() { err = errors.Join(err, end()) }()
	if err := repo.CheckBranch(ctx, o.Branch); err != nil {
		return nil, err
	}
	committer, err := repo.Committer(ctx)
	if err != nil {
		return nil, err
	}
	taken, err := Take(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, taken.Close()) }()
	ref := taken.Heads.Current
	if o.From != "" {
		ref = "refs/heads/" + o.From
	}
	if tip := taken.Heads.Commits[ref]; o.Reviewed != "" && tip != o.Reviewed {
		return nil, errdefs.New(errdefs.Precondition, "sandbox %[1]s: the last commit is %[2]s now, and not the one that was reviewed; look again: agentfense commits %[1]s", s.Name(), tip)
	}
	result, err = taken.Transplant(ctx, transplant.Plan{Ref: ref, AtBase: o.AtBase, Committer: committer, Judge: Judge(w)})
	if err != nil {
		return result, errdefs.New(errdefs.KindOf(err), "sandbox %s: %w", s.Name(), err)
	}
	if len(result.Refused) > 0 {
		return result, errdefs.New(errdefs.Precondition, "sandbox %s: nothing was committed, because some paths stop it", s.Name())
	}
	if o.DryRun {
		return result, nil
	}
	err = taken.Pack(ctx, result, func(pack io.Reader) error {
		return repo.Import(ctx, pack, len(result.Moved), o.Branch, result.Tip)
	})
	if err != nil {
		return result, err
	}
	return result, errors.Join(s.Log(commitsEvent(o.Branch, result)), cleangit.StoreIn(s.Dir()).NoteTaken(idsOf(result.Moved)))
}

// openFor opens the repository of the source, for a user of a server unless by is nil. Call end
// after. Errors: as Commits.
func openFor(ctx context.Context, s *record.Sandbox, by *gitconfig.User) (repo *gitcommit.Repository, end func() error, err error) {
	unlock := func() {}
	if by != nil {
		if unlock, err = lockContained(ctx, s.Home, s.Stored.Source, nil); err != nil {
			return nil, nil, err
		}
	}
	repo, err = gitcommit.Open(ctx, string(s.Stored.Source.Path))
	if err != nil {
		unlock()
		return nil, nil, err
	}
	if by != nil {
		repo.ActFor(by.Name, by.Email)
	}
	return repo, func() error {
		defer unlock()
		return repo.Close()
	}, nil
}

func idsOf(moved []transplant.Moved) []string {
	var ids []string
	for _, m := range moved {
		ids = append(ids, m.ID)
	}
	return ids
}

func commitsEvent(branch string, r *transplant.Transplanted) audit.Applied {
	e := audit.Applied{Branch: audit.Text(branch), Commit: r.Tip}
	seen := map[string]bool{}
	for _, left := range r.Dropped {
		if !seen[left.Path] {
			seen[left.Path] = true
			e.Refused = append(e.Refused, audit.Text("/"+left.Path))
		}
	}
	for _, m := range r.Moved {
		for _, x := range m.Changes {
			if !seen[x.Path] {
				seen[x.Path] = true
				e.Paths = append(e.Paths, audit.Text("/"+x.Path))
			}
		}
	}
	slices.Sort(e.Paths)
	return e
}
