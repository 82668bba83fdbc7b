// Package apply applies the changes of a sandbox to its source, or discards them. No data
// is lost: apply merges a text that has changed in the source since the sandbox saw it, and
// refuses any other such path, it replaces each file in one step, and it drops an entry from
// the delta only after the source has it durably. The next command finishes a killed apply.
package apply

import (
	"cmp"
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review/hunk"
)

// Options are the options of an apply.
type Options struct {
	// Paths select the changes at and below them; empty selects all.
	Paths []vpath.Path
	// Hunks are ids of changes and of hunks (package hunk); empty selects by Paths. The rest of a
	// file stays in the delta, relative to what the source has then. Not together with Paths.
	Hunks  []string
	DryRun bool
	// To is a directory to change instead of the source, or nil. Conflicts are then
	// conflicts with its content, and the delta keeps all changes.
	To *record.Source
	// Reviewed is the digest of the reviewed changes (review.Review.Remember). A change
	// that differs from the shown one is left out and reported. "" applies the present
	// changes.
	Reviewed string
	// AtStart applies the changes of a running sandbox as they are at the start, and leaves
	// out what the sandbox rewrites meanwhile.
	AtStart bool
	// OnConflict says what to do with a path that has changed in the source.
	OnConflict conflict.Resolution
	// Drop makes the running supervisor drop the applied entries (see
	// changes.DropVersions). With nil the sandbox must not run; Changes takes its lock and
	// drops them itself.
	Drop func([]changes.Version) (stale []vpath.Path, err error)
	// placed, if not nil, is called before the delta drops the applied entries, with what
	// the source now has of them.
	placed func([]changes.Version)
	// Keep, if not nil, leaves out what a person must review.
	Keep *Keeper
	// Unreviewed leaves out what could act on the host by itself, for changes that no person has
	// reviewed: see holdRisks. It needs OnConflict.
	Unreviewed bool
	// Progress, if not nil, is called after each path that was tried.
	Progress func(tried, total int)
	// Waiting, if not nil, is called if another process applies changes to the source, before
	// Changes waits for it.
	Waiting func(holder string)
	// Recovered, if not nil, is called with what a killed process had left in the source and
	// Changes has rolled back.
	Recovered func(history.Recovered)
}

// Changes applies the sandbox's changes to its source.
//
// It first checks every selected path. A text that has changed in the source, too, is merged. If
// that is not possible at one of the paths, or if the policy does not permit the sandbox to
// write there, it applies nothing: the error is a Precondition, and the result names all such
// paths. The caller can select the other paths, or set Options.OnConflict. Otherwise Changes
// replaces each file by one rename, directories first and deletions last, and then drops from
// the delta what the source has durably. It keeps a journal (package history): if the disk is
// full or ctx ends midway, it restores the source, and if it is killed, the next command does.
// If the host refuses a path, the result reports it, and it stays in the delta.
//
// Errors: Precondition, also if the sandbox is locked; NotFound for a path without changes, for an
// id that no change has, and for an Options.Reviewed that is no longer stored; Invalid; Denied and
// Exhausted from the host; Canceled; ErrBusy. A command in the sandbox can cause ErrBusy and
// Denied; if there is also another failure, the error is only that.
func Changes(ctx context.Context, s *record.Sandbox, o Options) (result Result, err error) {
	if !o.DryRun {
		defer s.Home.MakeRoom()()
	}
	h, err := openHistory(ctx, s, o)
	if err != nil {
		return result, err
	}
	defer h.Unlock()
	if result, err = changesIn(ctx, h, s, o); result.Transaction != "" {
		err = UnlessStopped(err, h, s)
	}
	return result, err
}

// changesIn is Changes with the history of the source, nil for an apply without a journal.
func changesIn(ctx context.Context, h *history.Source, s *record.Sandbox, o Options) (result Result, err error) {
	var own error // see applier
	defer func() { err = cmp.Or(err, own) }()
	w, err := openToApply(s, o)
	if err != nil {
		return result, err
	}
	defer func() {
		result.Growth.Files += w.Cleared.Files
		result.Growth.Bytes += w.Cleared.Bytes
		result.Growth.Dirs += w.Cleared.Dirs
		err = errors.Join(err, w.Close())
	}()
	w.NoteMade = o.placed != nil || o.Keep != nil || len(o.Hunks) > 0
	if err := Settle(h, w); err != nil {
		return result, err
	}
	p, err := planSelected(w, o)
	if err != nil {
		return result, err
	}
	if err := o.Keep.restrict(p); err != nil {
		return result, err
	}
	if o.Unreviewed {
		if err := p.holdRisks(); err != nil {
			return result, err
		}
	}
	if err := p.answer(ctx, o.onConflict(), s); err != nil {
		return p.result(), err
	}
	if o.DryRun {
		return p.result(), nil
	}
	log, err := s.OpenLog()
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	tell := p.teller(log, o)
	p.history = h
	var stale []vpath.Path
	stale, err, own = p.run(ctx, o, tell)
	result = p.result()
	result.Changed, result.Growth, result.Transaction = stale, p.growth(), p.transaction
	err = errors.Join(err, tell())
	if o.To == nil {
		if done := p.settled(); len(done) > 0 {
			err = errors.Join(err, manifest.Settle(s, func(at vpath.Path) bool { return done[at] }))
		}
	}
	return result, err
}

// teller returns a function that writes the record of the apply, once.
func (p *plan) teller(log *audit.Log, o Options) func() error {
	told := false
	return func() error {
		if told {
			return nil
		}
		event := p.event()
		if len(event.Paths) == 0 && (!o.OnConflict.Stops() || len(event.Refused) == 0) {
			return nil
		}
		told = true
		if o.To != nil {
			event.To = audit.Text(o.To.Path)
		}
		return log.Append(event)
	}
}

// planReviewed plans the changes that o selects; picked has them if o names hunks, else it is nil.
func planReviewed(w *changes.Work, changes []changes.Change, picked *hunk.Picked, o Options) (p *plan, err error) {
	var reviewed manifest.Manifest
	switch {
	case o.Reviewed != "":
		reviewed, err = manifest.Load(w.Sandbox, o.Reviewed)
	case picked != nil:
		reviewed = picked.Entries
	case o.AtStart && o.Drop != nil:
		reviewed, err = manifest.Of(w, changes)
	}
	if err == nil {
		p, err = newPlan(w, changes, reviewed, o.Paths)
	}
	if err != nil || reviewed == nil {
		return p, err
	}
	if err := p.takePicked(picked, o.Paths); err != nil {
		return nil, err
	}
	p.holdBack()
	return p, p.lookAhead(o.DryRun)
}

// settled returns the paths that are no longer changes because of the apply.
func (p *plan) settled() map[vpath.Path]bool {
	done, pending := map[vpath.Path]bool{}, map[vpath.Path]bool{}
	for _, s := range p.steps {
		if s.done && s.Status != 0 && s.part == nil {
			done[s.Path] = true
		}
	}
	for _, c := range p.work.Delta {
		pending[c.Path] = true
	}
	for at := range p.work.Resumed {
		if !pending[at] { // a killed apply has applied it
			done[at] = true
		}
	}
	return done
}

// answer resolves the conflicts, and returns an error if a path stops the apply.
func (p *plan) answer(ctx context.Context, how conflict.Resolution, sb *record.Sandbox) error {
	if how.Merges() {
		if err := p.mergeAll(ctx, how, sb.Name()); err != nil {
			return err
		}
	}
	if !how.Stops() {
		if err := p.resolve(how); err != nil {
			return err
		}
	} else if err := p.refusal(sb.Ref()); err != nil {
		p.skip()
		return err
	}
	p.keepWhole()
	for _, s := range p.steps {
		s.was = s.Base // clearDir removes the directory first
	}
	return nil
}

// run executes the plan. It calls tell after the steps and before it drops the entries from
// the delta. It returns the paths to which the sandbox wrote meanwhile. own is applier.own.
func (p *plan) run(ctx context.Context, o Options, tell func() error) (stale []vpath.Path, err, own error) {
	paths := p.paths()
	a := applier{work: p.work, plan: p, total: len(paths), progress: o.Progress, tell: tell, drop: p.dropping(o)}
	if a.progress == nil {
		a.progress = func(int, int) {}
	}
	if p.work.ApplyLock == nil {
		return nil, tooFull(record.HostError("apply: nothing applied", unix.ENOSPC)), nil
	}
	if p.history != nil {
		if err := p.begin(p.history, o); err != nil {
			return nil, err, nil
		}
	}
	p.work.ApplyLock.Deferred = p.txn != nil
	if err := p.work.ApplyLock.Intend(paths); err != nil {
		return nil, tooFull(p.rollBack(err)), nil
	}
	if err := a.listPlacing(p.unstaged(), func(*step) *changes.Staged { return nil }); err != nil {
		return nil, p.rollBack(err), nil
	}
	failpoint.At("sync: intended")
	err = a.run(ctx)
	failpoint.At("sync: dropped")
	if a.dropped {
		err = errors.Join(err, p.work.EndApply())
	} // else the delta still has the placed entries, as after a kill
	return a.stale, err, a.own
}

// dropping returns what drops the applied versions from the delta; all says whether they are all
// changes.
func (p *plan) dropping(o Options) func(v []changes.Version, all bool) ([]vpath.Path, error) {
	return func(v []changes.Version, all bool) ([]vpath.Path, error) {
		if o.To != nil {
			return nil, nil
		}
		if o.placed != nil {
			o.placed(v)
		}
		v, forgets, err := p.work.MarkKept(v)
		if err != nil {
			return nil, err
		}
		if o.Drop == nil && all && forgets && len(o.Paths) == 0 && len(o.Hunks) == 0 {
			return nil, p.work.Stack.Reset() // equivalent, and faster
		}
		return p.work.Drop(v)
	}
}

// tooFull adds to an error of a full disk what can be done.
func tooFull(err error) error {
	if !errdefs.Is(err, errdefs.Exhausted) {
		return err
	}
	return errdefs.New(errdefs.Exhausted, "%w: apply fewer paths at once, or to free the disk, discard changes or remove a sandbox", err)
}

// paths returns the paths of the source that the plan changes.
func (p *plan) paths() []vpath.Path {
	var list []vpath.Path
	for _, s := range p.steps {
		if !s.done && s.outcome == Applied {
			list = append(list, s.Path)
		}
	}
	return list
}
