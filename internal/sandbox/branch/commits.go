package branch

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/checkout"
	"github.com/agentfense/agentfense/internal/sandbox/cleangit"
	"github.com/agentfense/agentfense/internal/sandbox/gitcommit"
	"github.com/agentfense/agentfense/internal/sandbox/gitconfig"
	"github.com/agentfense/agentfense/internal/sandbox/gitindex"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/transplant"
)

// CommitsOptions say which commits of a sandbox to take, and where.
type CommitsOptions struct {
	From     string // the branch of the sandbox; "" for the one that is checked out
	Branch   string // a new one of the source; "" for the one that is checked out
	AtBase   bool   // begin it at the commit of which the clean repository was made
	Reviewed string // the last commit must be this one; "" for any
	DryRun   bool
	// For is a user of a server, who is the committer; nil for the caller. git then neither reads
	// nor writes anything outside of the source, and Commits waits for the source's lock.
	For *gitconfig.User
	// Waiting and Recovered are those of apply.Options, for the branch that is checked out.
	Waiting   func(holder string)
	Recovered func(history.Recovered)
}

// Take takes the commits out of a sandbox's clean repository. Close the result. Errors: those of
// transplant.TakeOut; Precondition for a sandbox without one.
func Take(ctx context.Context, s *record.Sandbox) (*transplant.Taken, error) {
	if !s.Stored.Git.IsClean() {
		return nil, errdefs.New(errdefs.Precondition, "sandbox %s: it has no repository of its own, because it was not made with --git=clean (in the API: git); look at its changes%s", s.Name(), errdefs.Command("diff "+s.Name()))
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
		case len(name) >= unix.PathMax:
			return transplant.Refuse, "its name is too long: git could not check it out"
		case w.WasHidden(p):
			return transplant.Drop, "the policy hides it"
		case !w.MayWrite(p):
			return transplant.Refuse, "the policy lets commands read it, and not write it"
		}
		return transplant.Take, ""
	}
}

// Committed is what Commits did, or would do.
type Committed struct {
	*transplant.Transplanted
	Branch      string // that is new, or was moved
	Moves       bool   // it is the one that is checked out
	Transaction string // of the history, if it was moved
}

// Commits makes the commits of a sandbox anew in the source's repository: on a new branch, or on
// the one that is checked out, with the work tree and the index. The result says what was left out,
// and what stops it, also beside an error. Errors: Precondition; Exists, Invalid for a branch;
// NotFound for one of the sandbox; those of Take and of checkout.Plan.Execute.
func Commits(ctx context.Context, s *record.Sandbox, o CommitsOptions) (result *Committed, err error) {
	w, err := changes.OpenToRead(s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	c := &committing{sandbox: s, o: o}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.open(ctx); err != nil {
		return nil, errdefs.New(errdefs.KindOf(err), "apply commits of %s: %w", s.Ref(), err)
	}
	committer, err := c.repo.Committer(ctx)
	if err != nil {
		return nil, err
	}
	if c.taken, err = Take(ctx, s); err != nil {
		return nil, err
	}
	ref, err := c.chosen()
	if err != nil {
		return nil, err
	}
	made, err := c.taken.Transplant(ctx, transplant.Plan{Ref: ref, AtBase: o.AtBase, Committer: committer, Judge: Judge(w)})
	if made == nil {
		return nil, errdefs.New(errdefs.KindOf(err), "sandbox %s: %w", s.Name(), err)
	}
	result = &Committed{Transplanted: made, Branch: o.Branch}
	if c.tree != nil {
		result.Branch, result.Moves = strings.TrimPrefix(c.head.Ref, branches), true
	}
	if err == nil && len(made.Refused) == 0 {
		err = c.keep(ctx, result)
	}
	if err != nil {
		return result, errdefs.New(errdefs.KindOf(err), "sandbox %s: %w", s.Name(), err)
	}
	if len(made.Refused) > 0 {
		return result, errdefs.New(errdefs.Precondition, "sandbox %s: nothing was committed, because some paths stop it", s.Name())
	}
	if o.DryRun {
		return result, nil
	}
	return result, errors.Join(s.Log(commitsEvent(result)), cleangit.StoreIn(s.Dir()).NoteTaken(becameOf(result, result.Transaction, false)))
}

// branches begins the names of branches.
const branches = "refs/heads/"

// committing is a run of Commits.
type committing struct {
	sandbox *record.Sandbox
	o       CommitsOptions
	repo    *gitcommit.Repository
	history *history.Source // locked, or nil
	taken   *transplant.Taken
	// If the branch that is checked out is moved: the source, else nil, and what is checked out.
	tree *changes.SourceTree
	head history.CheckedOut
}

func (c *committing) close() error {
	var err error
	if c.taken != nil {
		err = c.taken.Close()
	}
	if c.repo != nil {
		err = errors.Join(err, c.repo.Close())
	}
	if c.tree != nil {
		err = errors.Join(err, c.tree.Root.Close())
	}
	c.history.Unlock()
	return err
}

// open opens the repository of the source, with the source's lock for a user of a server, or if the
// branch that is checked out is moved. Errors: as Commits.
func (c *committing) open(ctx context.Context) (err error) {
	s := c.sandbox
	switch {
	case c.o.For != nil:
		c.history, err = lockContained(ctx, s.Home, s.Stored.Source, c.o.Waiting)
	case c.o.Branch == "":
		h := history.Open(s.Home, s.Stored.Source)
		if err = h.Lock(ctx, c.o.Waiting); err == nil {
			c.history = h
		}
	}
	if err == nil {
		c.repo, err = gitcommit.Open(ctx, string(s.Stored.Source.Path))
	}
	if err != nil {
		return err
	}
	if c.o.For != nil {
		c.repo.ActFor(c.o.For.Name, c.o.For.Email)
	}
	if c.o.Branch != "" {
		return c.repo.CheckBranch(ctx, c.o.Branch)
	}
	return c.openTree()
}

// openTree opens the source to move the branch that is checked out, after it has rolled back what a
// killed process left there.
func (c *committing) openTree() error {
	recovered, err := c.history.Recover()
	if c.o.Recovered != nil {
		for _, r := range recovered {
			c.o.Recovered(r)
		}
	}
	if err = errors.Join(err, c.noteCompleted(recovered)); err != nil {
		return err
	}
	root, err := c.sandbox.Stored.Source.Open()
	if err != nil {
		return err
	}
	c.tree = &changes.SourceTree{Root: root, Owner: c.sandbox.ID()}
	if c.head, err = history.ReadCheckedOut(c.tree); err != nil {
		return err
	}
	const orNew = "or name a new branch with --to-branch (to_branch)"
	switch {
	case c.o.AtBase:
		return errdefs.New(errdefs.Invalid, "commits at the base do not continue the branch that is checked out: name a new branch with --to-branch (to_branch)")
	case c.head.Commit == "":
		return errdefs.New(errdefs.Precondition, "the source has no commit yet")
	case !strings.HasPrefix(c.head.Ref, branches):
		return errdefs.New(errdefs.Precondition, "HEAD is detached: check out a branch with git switch, %s", orNew)
	}
	if why := c.head.Refuses(c.head.Ref, c.head.Commit); why != "" {
		return errdefs.New(errdefs.Precondition, "%s, %s", why, orNew)
	}
	return nil
}

// noteCompleted notes that the branch has the commits of applies that a killed process has left and
// that are complete now.
func (c *committing) noteCompleted(recovered []history.Recovered) error {
	var err error
	for _, r := range recovered {
		if r.Completed && r.Branch != nil && r.Kind == history.Apply && r.Sandbox == c.sandbox.ID() {
			err = errors.Join(err, cleangit.StoreIn(c.sandbox.Dir()).NoteUndone(r.Branch.To, false))
		}
	}
	return err
}

// chosen returns the ref of the sandbox whose commits are taken. Errors: Precondition if it is not
// as it was reviewed, or the commits are not for the branch that is checked out.
func (c *committing) chosen() (string, error) {
	ref := c.taken.Heads.Current
	if c.o.From != "" {
		ref = branches + c.o.From
	}
	name := c.sandbox.Name()
	if tip := c.taken.Heads.Commits[ref]; c.o.Reviewed != "" && tip != c.o.Reviewed {
		return "", errdefs.New(errdefs.Precondition, "sandbox %s: the last commit is %s now, and not the one that was reviewed; look again%s", name, tip, errdefs.Command("commits "+name))
	}
	if of := c.taken.Info.Branch; c.tree != nil && of != "" && of != c.head.Ref {
		return "", errdefs.New(errdefs.Precondition, "sandbox %s: its repository was made of the branch %s, and %s is checked out: check out the former, or name a new branch with --to-branch (to_branch)",
			name, vpath.Quote(strings.TrimPrefix(of, branches)), vpath.Quote(strings.TrimPrefix(c.head.Ref, branches)))
	}
	return ref, nil
}

// keep stores what was made, unless it is a dry run, and makes or moves the branch. Paths that stop
// it are in the result.
func (c *committing) keep(ctx context.Context, r *Committed) error {
	if c.tree != nil {
		return c.moveHead(ctx, r)
	}
	if c.o.DryRun {
		return nil
	}
	return c.taken.Pack(ctx, r.Transplanted, func(pack io.Reader) error {
		return c.repo.Import(ctx, pack, len(r.Moved), c.o.Branch, r.Tip)
	})
}

// moveHead moves the branch that is checked out, with the work tree and the index.
func (c *committing) moveHead(ctx context.Context, r *Committed) (err error) {
	continues, err := c.taken.Continues(ctx, r.Transplanted)
	switch {
	case err != nil:
		return err
	case r.Base != c.head.Commit:
		return errdefs.New(errdefs.Precondition, "another process has just moved the branch: try again")
	case !continues:
		return errdefs.New(errdefs.Precondition, "the commits continue an older commit than the last one of your branch: name a new branch with --to-branch (to_branch), and merge that")
	}
	err = c.taken.Pack(ctx, r.Transplanted, func(pack io.Reader) error { return c.repo.StoreAside(ctx, pack) })
	if err != nil {
		return err
	}
	move := history.BranchMove{Ref: c.head.Ref, From: c.head.Commit, To: r.Tip}
	plan, err := checkout.Prepare(ctx, c.repo, c.tree, move)
	if err != nil {
		return err
	}
	defer plan.Close()
	for _, b := range plan.Blocked {
		r.Refused = append(r.Refused, transplant.Stopped{Path: b.Path, Commit: lastOf(r.Moved, b.Path), Why: b.Why, Conflicts: true})
	}
	if len(plan.Blocked) > 0 || c.o.DryRun {
		return nil
	}
	err = c.taken.Pack(ctx, r.Transplanted, func(pack io.Reader) error { return c.repo.Store(ctx, pack, len(r.Moved)) })
	if err != nil {
		return err
	}
	h := c.header()
	// After a kill, the commits are not made again if the branch has them, and otherwise count as
	// in the sandbox alone.
	store := cleangit.StoreIn(c.sandbox.Dir())
	if err := store.NoteTaken(becameOf(r, h.ID, true)); err != nil {
		return err
	}
	r.Transaction, err = plan.Execute(ctx, c.history, h, "commits of "+c.sandbox.Name())
	return err
}

// header is that of the transaction.
func (c *committing) header() history.Header {
	h := history.Header{
		ID: history.NewID(), Kind: history.Apply, Time: time.Now().UTC(), UID: os.Geteuid(), Sandbox: c.sandbox.ID(), Name: c.sandbox.Name(),
	}
	if of := c.sandbox.Stored.Served; of != nil {
		h.Codebase = of.CodebaseID
	}
	return h
}

// lastOf returns the last commit of the sandbox that changes a path.
func lastOf(moved []transplant.Moved, path string) string {
	for _, m := range slices.Backward(moved) {
		if slices.ContainsFunc(m.Changes, func(x transplant.Change) bool { return x.Path == path }) {
			return m.ID
		}
	}
	return ""
}

// becameOf returns what each commit became.
func becameOf(r *Committed, transaction string, undone bool) map[string]cleangit.Became {
	became := map[string]cleangit.Became{}
	for _, m := range r.Moved {
		became[m.ID] = cleangit.Became{Real: m.Real, Transaction: transaction, Undone: undone}
	}
	return became
}

func commitsEvent(r *Committed) audit.Applied {
	e := audit.Applied{Branch: audit.Text(r.Branch), Commit: r.Tip}
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
