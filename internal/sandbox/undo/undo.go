// Package undo takes applies back, and undos too: it restores what the source had before, and puts
// the changes back into the sandbox's delta.
//
// It promises the checks of an apply: if a path is not as the transaction left it, nothing is
// changed. Package history executes the steps, as a transaction that can be reversed again.
package undo

import (
	"context"
	"errors"
	"iter"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/cleangit"
	"github.com/agentfense/agentfense/internal/sandbox/gitcommit"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Options say how to reverse a transaction.
type Options struct {
	DryRun bool
	// Drop is that of apply.Options.
	Drop func([]changes.Version) (stale []vpath.Path, err error)
	// Waiting and Recovered are those of apply.Options.
	Waiting   func(holder string)
	Recovered func(history.Recovered)
	// Contained is for a user of a server: git, which moves the branch of commits that were
	// applied, must not leave the source.
	Contained bool
}

// Path is what is done, or would be, at a path.
type Path struct {
	Path   vpath.Path
	Status changes.Status // of the reversal
	// Conflict is the reason why nothing is changed, or "".
	Conflict string
	// Implied marks a directory that a review does not list.
	Implied bool
}

// Result says what was done, or would be.
type Result struct {
	Of    history.Entry // the transaction that is reversed
	Kind  history.Kind  // Undo or Redo
	ID    string        // of the reversal; "" in a dry run
	Paths []Path
	// GivenBack says that the sandbox has the undone changes again. Otherwise they are in the
	// history alone.
	GivenBack bool
}

// Listed returns the paths to show to a person: what apply listed, and conflicts.
func (r *Result) Listed() []Path {
	return slices.DeleteFunc(slices.Clone(r.Paths), func(p Path) bool { return p.Implied && p.Conflict == "" })
}

// Conflicts returns the number of paths that prevent the reversal.
func (r *Result) Conflicts() int {
	n := 0
	for _, p := range r.Paths {
		if p.Conflict != "" {
			n++
		}
	}
	return n
}

// Select returns the transaction that an undo, or with redo a redo, reverses: the last one that
// has an effect. Errors: NotFound.
func Select(entries []history.Entry, redo bool) (*history.Entry, error) {
	for i := len(entries) - 1; i >= 0; i-- {
		e := &entries[i]
		if mayBeCommitted(e) && e.ReversedBy == "" && (e.Kind == history.Undo) == redo {
			return e, nil
		}
	}
	if redo {
		return nil, errdefs.New(errdefs.NotFound, "redo: no undo to take back, or it is taken back already")
	}
	return nil, errdefs.New(errdefs.NotFound, "undo: nothing was applied, or it is undone already")
}

// mayBeCommitted reports whether a transaction is committed, or was killed and may have moved its
// branch. Reverse then completes it or rolls it back first.
func mayBeCommitted(e *history.Entry) bool {
	return e.State == history.Committed || e.State == history.Pending && e.Branch != nil
}

// Named returns the transaction that an undo or a redo of that id reverses: if the transaction was
// undone and done again, the last of these. Errors: NotFound; Precondition if it is undone, or for
// a redo if it is not.
func Named(entries []history.Entry, redo bool, id string) (*history.Entry, error) {
	at := map[string]*history.Entry{}
	for i := range entries {
		at[entries[i].ID] = &entries[i]
	}
	e := at[id]
	if e == nil || !mayBeCommitted(e) {
		return nil, errdefs.New(errdefs.NotFound, "transaction %s: not in the history", vpath.Escape(id))
	}
	for at[e.ReversedBy] != nil {
		e = at[e.ReversedBy]
	}
	switch is := e.Kind == history.Undo; {
	case is && !redo:
		return nil, errdefs.New(errdefs.Precondition, "transaction %s: it is undone already; a redo applies it again%s", id, errdefs.Command("redo "+id))
	case !is && redo:
		return nil, errdefs.New(errdefs.Precondition, "transaction %s: it is not undone", id)
	}
	return e, nil
}

// Reverse reverses the transaction of in the source h. s is the sandbox of which the changes are,
// or nil if it is removed. If a path has changed since, the error is a Precondition and the result
// names all such paths. Errors: also those of history.Source.Lock, Recover and Reverse, and those
// of changes.OpenTo.
func Reverse(ctx context.Context, h *history.Source, of *history.Entry, s *record.Sandbox, o Options) (result Result, err error) {
	result.Of, result.Kind = *of, history.Undo
	if of.Kind == history.Undo {
		result.Kind = history.Redo
	}
	if !o.DryRun {
		unlock, err := lock(ctx, h, of, s, o)
		if err != nil {
			return result, err
		}
		defer unlock()
	}
	root, err := of.Source.Open()
	if err != nil {
		return result, err
	}
	defer root.Close()
	tree := &changes.SourceTree{Root: root, Owner: record.ID(of.ID)}
	plan, err := history.PlanReversal(tree, of)
	if err != nil {
		return result, err
	}
	defer plan.Close()
	plan.Move = func(b history.BranchMove, held *os.File) error {
		return moveBranch(ctx, of, root, b, held, o.Contained)
	}
	if result.Paths, err = pathsOf(plan); err != nil || o.DryRun {
		return result, err
	}
	if len(plan.Conflicts) > 0 {
		return result, Refusal(&result)
	}
	d, err := openDelta(h, of, s, o)
	if err != nil {
		return result, err
	}
	err = d.execute(h, plan, of, s, &result)
	if err = errors.Join(err, d.close()); result.ID != "" {
		err = apply.UnlessStopped(err, h, s)
	}
	return result, err
}

// execute executes a plan, tells it, and makes the delta fit.
func (d *delta) execute(h *history.Source, plan *history.Reversal, of *history.Entry, s *record.Sandbox, result *Result) (err error) {
	header := history.Header{ID: history.NewID(), Kind: result.Kind, Time: time.Now().UTC(), UID: os.Geteuid()}
	redo := result.Kind == history.Redo
	if d.work != nil {
		plan.Rest = func() (_ iter.Seq[any], err error) {
			rest := apply.Rest{}
			if redo {
				rest.Versions, err = d.takesOut(plan.Steps())
			}
			if e, is := audit.Bound(undone(result, header.ID)).(audit.Undone); is {
				rest.Undone = &e
			}
			return rest.Parts(), err
		}
	}
	if result.ID, err = reverse(h, plan, header, of, s); err != nil {
		return err
	}
	if plan.Rest != nil {
		err = apply.Settle(h, d.work)
	} else {
		err = d.tell(result)
	}
	if err != nil || redo {
		return err
	}
	failpoint.At("undo: told")
	done, err := h.Find(result.ID)
	if err == nil {
		err = done.Load()
	}
	if err == nil {
		result.GivenBack, err = d.update(done)
	}
	return err
}

// reverse executes a plan, and notes what becomes of commits: before an undo and after a redo, so
// that after a kill they count as in the sandbox alone.
func reverse(h *history.Source, plan *history.Reversal, header history.Header, of *history.Entry, s *record.Sandbox) (id string, err error) {
	if header.Kind == history.Undo {
		if err := noteUndone(of, s, true); err != nil {
			return "", err
		}
		return h.Reverse(plan, header)
	}
	if id, err = h.Reverse(plan, header); err != nil {
		return "", err
	}
	return id, noteUndone(of, s, false)
}

// noteUndone notes whether only the sandbox has the commits that a transaction brought, or that an
// undo of it took back.
func noteUndone(of *history.Entry, s *record.Sandbox, isUndone bool) error {
	if s == nil || of.Branch == nil {
		return nil
	}
	tip := of.Branch.To
	if of.Kind == history.Undo {
		tip = of.Branch.From
	}
	return cleangit.StoreIn(s.Dir()).NoteUndone(tip, isUndone)
}

// moveBranch moves a branch of the source of a transaction, which root is. Errors: those of
// gitcommit.
func moveBranch(ctx context.Context, of *history.Entry, root *os.File, b history.BranchMove, held *os.File, contained bool) (err error) {
	if contained {
		if err := gitcommit.CheckContained(root); err != nil {
			return err
		}
	}
	repo, err := gitcommit.Open(ctx, string(of.Source.Path))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, repo.Close()) }()
	if contained {
		repo.ActFor("", "")
	}
	return repo.MoveBranch(ctx, held, b.Ref, b.From, b.To, "undo or redo of "+of.ID)
}

// Refusal returns the error that stops a reversal with conflicts, or nil. Errors: Precondition.
func Refusal(r *Result) error {
	if r.Conflicts() == 0 {
		return nil
	}
	return errdefs.New(errdefs.Precondition, "%s %s: nothing changed: %d of %d paths have changed since; undo later applies to them, or set your own changes there aside, and try again", r.Kind, r.Of.ID, r.Conflicts(), len(r.Listed()))
}

// lock takes the source's lock, rolls back what a killed process has left there, and checks that
// the transaction is still as it was found.
func lock(ctx context.Context, h *history.Source, of *history.Entry, s *record.Sandbox, o Options) (unlock func(), err error) {
	room := func() {}
	if s != nil {
		room = s.Home.MakeRoom()
	}
	if err := h.Lock(ctx, o.Waiting); err != nil {
		room()
		return nil, err
	}
	unlock = func() {
		h.Unlock()
		room()
	}
	recovered, err := h.Recover()
	if o.Recovered != nil {
		for _, r := range recovered {
			o.Recovered(r)
		}
	}
	var now *history.Entry
	if err == nil {
		now, err = h.Find(of.ID)
	}
	if err == nil && now.State != history.Committed {
		err = errdefs.New(errdefs.Precondition, "transaction %s: it was killed before its end, and the source is restored", of.ID)
	}
	if err == nil && now.ReversedBy != "" {
		err = errdefs.New(errdefs.Precondition, "transaction %s: another command has just reversed it", of.ID)
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// pathsOf returns what the plan does.
func pathsOf(plan *history.Reversal) ([]Path, error) {
	why := map[vpath.Path]string{}
	for _, c := range plan.Conflicts {
		why[c.Path] = c.Reason
	}
	steps := plan.Steps()
	paths := make([]Path, 0, len(steps))
	for i := range steps {
		at, err := steps[i].At()
		if err != nil {
			return nil, err
		}
		paths = append(paths, Path{at, steps[i].Status(), why[at], steps[i].Implied})
		delete(why, at)
	}
	for _, at := range slices.Sorted(maps.Keys(why)) { // HEAD, of a branch that has moved on
		paths = append(paths, Path{Path: at, Status: changes.Modified, Conflict: why[at]})
	}
	return paths, nil
}

// tell writes the record of the reversal, if the sandbox still has a log.
func (d *delta) tell(r *Result) error {
	if d.sandbox == nil {
		return nil
	}
	return d.sandbox.Log(undone(r, r.ID))
}

// undone is the audit record of a reversal with an id.
func undone(r *Result, id string) audit.Undone {
	e := audit.Undone{Mount: r.Of.Mount, Transaction: id, Of: r.Of.ID, Redo: r.Kind == history.Redo}
	for _, p := range r.Paths {
		e.Paths = append(e.Paths, audit.Text(p.Path))
	}
	if r.Of.Elsewhere {
		e.To = audit.Text(r.Of.Source.Path)
	}
	return e
}
