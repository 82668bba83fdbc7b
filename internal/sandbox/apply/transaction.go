package apply

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/parallel"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// transaction is the journal of an apply, with the number that each step has in it.
type transaction struct {
	*history.Txn
	number map[*step]int
}

// openHistory takes the lock of the source that o changes, and rolls back what a killed apply has
// left there. It returns nil if the apply has no journal: a dry run, or one to a codebase of a
// server, which has a list of the steps. Unlock it after.
func openHistory(ctx context.Context, s *record.Sandbox, o Options) (*history.Source, error) {
	if o.DryRun || s.Mount() == "" && s.Stored.IsUploaded() {
		return nil, nil
	}
	at := s.Stored.Source
	if o.To != nil {
		at = *o.To
	}
	h := history.Open(s.Home, at)
	if err := h.Lock(ctx, o.Waiting); err != nil {
		return nil, err
	}
	recovered, err := h.Recover()
	if err != nil {
		h.Unlock()
		return nil, err
	}
	if o.Recovered != nil {
		for _, r := range recovered {
			o.Recovered(r)
		}
	}
	return h, nil
}

// RecoverSource rolls back what a killed apply or undo has left in the source of the sandbox, and
// calls told, unless it is nil, with it. What one has committed is completed in the sandbox, unless
// that is in use. drop is Options.Drop. RecoverSource does nothing while another process is at work
// in the source.
func RecoverSource(s *record.Sandbox, drop func([]changes.Version) ([]vpath.Path, error), told func(history.Recovered)) error {
	h := history.Open(s.Home, s.Stored.Source)
	rests, err := h.Rests(s)
	if err != nil || len(rests) == 0 && !h.IsPending() {
		return err
	}
	defer s.Home.MakeRoom()()
	if ok, err := h.TryLock(); err != nil || !ok {
		return err
	}
	defer h.Unlock()
	recovered, err := h.Recover()
	if told != nil {
		for _, r := range recovered {
			told(r)
		}
	}
	if err != nil || len(recovered)+len(rests) == 0 {
		return err
	}
	return settleUnused(h, s, drop)
}

// settleUnused is Settle for a sandbox that is not open. If that is in use, the next apply does the
// rest.
func settleUnused(h *history.Source, s *record.Sandbox, drop func([]changes.Version) ([]vpath.Path, error)) error {
	w, err := changes.OpenTo(s, record.PurposeClear, drop, false)
	if errdefs.Is(err, errdefs.Precondition) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(Settle(h, w), w.Close())
}

// UnlessStopped returns the error of a transaction that is committed in the source h. If it is
// changes.ErrStopped, the transaction did not fail: UnlessStopped does what remains to be done in
// the sandbox.
func UnlessStopped(err error, h *history.Source, s *record.Sandbox) error {
	if errors.Is(err, changes.ErrStopped) {
		return settleUnused(h, s, nil)
	}
	return err
}

// RecoverSources does what RecoverSource does, for the workspace and each mount of a sandbox.
func RecoverSources(s *record.Sandbox, told func(history.Recovered)) error {
	var errs []error
	for _, part := range s.Parts() {
		errs = append(errs, RecoverSource(part, nil, told))
	}
	return errors.Join(errs...)
}

// CompleteStopped completes in a sandbox that is stopped what applies and redos have committed, as
// RecoverSource does. Call it before the delta becomes another one: what remains to be done is of
// the present one. It does nothing in a part that has lost its source.
func CompleteStopped(s *record.Sandbox) error {
	for _, part := range s.Parts() {
		rests, err := history.Open(part.Home, part.Stored.Source).Rests(part)
		if err != nil {
			return err
		}
		if len(rests) == 0 {
			continue
		}
		if _, why := part.SourceLost(); why != nil {
			continue
		}
		if err := RecoverSource(part, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// begin writes the journal of the plan.
func (p *plan) begin(h *history.Source, o Options) error {
	header := history.Header{
		ID: history.NewID(), Kind: history.Apply, Time: time.Now().UTC(), UID: os.Geteuid(),
		Sandbox: p.work.Sandbox.ID(), Name: p.work.Sandbox.Name(), Mount: p.work.Sandbox.Mount(), Elsewhere: p.work.Elsewhere,
		HasRest: !p.work.Elsewhere, // else the delta does not change
	}
	if of := p.work.Sandbox.Stored.Served; of != nil && header.Mount == "" && !header.Elsewhere {
		header.Codebase = of.CodebaseID
	}
	if o.Keep != nil {
		header.Kind = history.Keep
	}
	t := &transaction{number: map[*step]int{}}
	var open []*step
	for _, s := range p.steps {
		if !s.done && s.outcome == Applied {
			t.number[s] = len(open)
			open = append(open, s)
		}
	}
	if len(open) == 0 {
		return nil
	}
	steps := make([]history.Step, len(open))
	err := parallel.Each(len(open), func(i int) (err error) {
		steps[i], err = p.describe(open[i])
		return err
	})
	if err != nil {
		return err
	}
	if t.Txn, err = h.Begin(&p.work.Tree, header, steps); err == nil {
		p.txn = t
	}
	return err
}

// describe returns what the step does, as far as it is known before the step. Several goroutines
// may call it.
func (p *plan) describe(s *step) (history.Step, error) {
	st := history.Step{Path: vpath.Escape(string(s.Path)), Moved: s.moved, Implied: s.implied}
	err := p.work.Tree.At(s.Path, func(e changes.Entry) error {
		now, err := e.Stat()
		if err == nil && now != nil {
			st.Linked = now.Nlink > 1 && !record.IsDir(now.Mode)
			st.Before, err = history.EntityOf(e, now)
		}
		return err
	})
	if err != nil && !changes.IsWayGone(err) {
		return st, record.HostError("apply "+s.Path.String(), err)
	}
	err = nil
	if st.Before != nil && s.Fresh && s.Base != nil && s.Base.SHA256 != nil && st.Before.Mode&record.TypeBits == unix.S_IFREG {
		st.Before.SHA256 = hex.EncodeToString(s.Base.SHA256)
	}
	if s.Status != changes.Deleted {
		st.After, err = p.comes(s, &st)
	}
	return st, err
}

// comes returns what the step places, as far as it is known before the step.
func (p *plan) comes(s *step, st *history.Step) (*history.Entity, error) {
	after := &history.Entity{Mode: s.Info.Mode & (record.TypeBits | record.PermBits), Size: s.Info.Size, Mtime: s.Info.Mtime}
	switch s.Info.Mode & record.TypeBits {
	case unix.S_IFDIR:
		after = &history.Entity{Mode: s.Info.Mode & (record.TypeBits | record.StickyBits)}
	case unix.S_IFLNK:
		target, err := p.target(s)
		after.Target = vpath.Escape(target)
		return after, record.UnlessDenied(err)
	case unix.S_IFREG:
		after.Mode = s.placedMode()
		if s.SameContent && !st.Linked && st.Before != nil {
			// Only the mode changes, in place.
			mode := after.Mode
			*after = *st.Before
			after.Mode = mode
		}
	}
	return after, nil
}

// image returns where the step puts what it replaces; nil for nothing. Errors: ErrMoved if
// the journal expects the mode alone to change, and the file has to be replaced.
func (p *plan) image(s *step) (*changes.Image, error) {
	if p.txn == nil {
		return nil, nil
	}
	i := p.txn.Image(p.txn.number[s])
	if i == nil && !s.inPlace && s.Status == changes.Modified && s.Info.Mode&record.TypeBits == unix.S_IFREG {
		return nil, changes.ErrMoved
	}
	return i, nil
}

// willPlace adds to the journal which file the step is about to place.
func (p *plan) willPlace(s *step, made *layer.Base, file *changes.Staged) {
	if p.txn == nil || file == nil {
		return // the journal has it already
	}
	after := &history.Entity{Mode: made.Mode, Dev: made.Dev, Ino: made.Ino, Size: made.Size, Mtime: made.Mtime, SHA256: file.Sum}
	p.txn.Place(p.txn.number[s], after)
}

// commit ends the journal, after the changes are durable. versions are what the delta drops then.
func (p *plan) commit(versions []changes.Version) error {
	if p.txn == nil {
		return nil
	}
	if err := p.work.ApplyLock.Sync(); err != nil {
		return err
	}
	var left []int
	for s, n := range p.txn.number {
		if !s.done {
			left = append(left, n)
		}
	}
	if len(left) < len(p.txn.number) {
		if err := p.keepRest(versions); err != nil {
			return tooFull(p.rollBack(err))
		}
		p.transaction = p.txn.ID()
	}
	txn := p.txn
	p.txn = nil
	return txn.Commit(left)
}

// keepRest keeps with the journal what remains to be done in the sandbox after the commit.
func (p *plan) keepRest(versions []changes.Version) (err error) {
	if p.work.Elsewhere {
		return nil
	}
	rest := Rest{Versions: versions}
	if e, is := audit.Bound(p.event()).(audit.Applied); is {
		rest.Applied = &e
	}
	if p.work.Lock == nil { // the sandbox runs
		if err := rest.noteRemoved(p.work); err != nil {
			return err
		}
	}
	p.rest, err = p.txn.KeepRest(rest.Parts())
	return err
}

// rollBack restores the source after the failure of a step, and marks all steps as not done. The
// error tells what happened.
func (p *plan) rollBack(failure error) error {
	if p.txn == nil {
		return failure
	}
	left, err := p.txn.Rollback()
	p.txn = nil
	if err != nil {
		return errors.Join(failure, errdefs.New(record.DiskKind(err), "%w: some changes are applied; the next command on this source restores it", err))
	}
	stays := map[vpath.Path]bool{}
	var names []string
	for _, l := range left {
		stays[l.Path] = true
		names = append(names, fmt.Sprintf("%s (%s)", changes.Quote(l.Path), l.Reason))
	}
	for _, s := range p.steps {
		if s.isPlanned() || s.done && s.Status != 0 && s.outcome == Applied && !stays[s.Path] {
			s.done = false
			s.stop(Skipped, "nothing was applied, because a step failed")
		}
	}
	if err := cmp.Or(p.history.Rebase(p.work), p.work.EndApply()); err != nil {
		return errors.Join(failure, err)
	}
	if len(names) > 0 {
		return errdefs.New(errdefs.KindOf(failure), "%w; the source was restored but for %s", failure, strings.Join(names, ", "))
	}
	return errdefs.New(errdefs.KindOf(failure), "%w; nothing was applied", failure)
}
