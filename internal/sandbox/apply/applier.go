package apply

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// batchFiles is how many files are staged before they are made durable and placed. It bounds the
// open descriptors. Tests change it.
var batchFiles = 4096

const (
	// batchBytes is the same in bytes. It bounds the extra disk space.
	batchBytes = 64 << 20
	// Up to fewFiles files are made durable one by one, more by one syncfs(2), which writes
	// the whole file system.
	fewFiles = 8
)

// applier executes a plan. One goroutine changes its fields.
type applier struct {
	work     *changes.Work
	plan     *plan
	progress func(tried, total int)
	tell     func() error // writes what was done to the audit log
	// drop drops the entries of steps from the delta. all says that these are all steps of
	// the plan.
	drop func(v []changes.Version, all bool) (stale []vpath.Path, err error)

	broken  map[vpath.Path]bool // git directories with a failed change
	touched map[vpath.Path]bool // directories with names that are not durable yet
	late    []*step             // directories that get their mode after their content
	first   []*step             // deletions that come before the files are placed, see plan.whole
	tried   int                 // steps
	total   int
	failure error // the first, except those in own
	// own is a failure that a command can cause at will: it closes a file or, of lower
	// precedence, keeps writing to one. It never hides failure.
	own     error
	stopped bool // give up the remaining steps
	undone  bool // restore the source: the disk is full, or the apply was canceled
	dropped bool // the applied entries are dropped from the delta
	stale   []vpath.Path
}

// run executes the plan: directories, files, deletions, and then entries that replace a
// deleted directory. It changes a directory's mode first if the owner can then fill it,
// else last.
func (a *applier) run(ctx context.Context) error {
	a.touched, a.broken = map[vpath.Path]bool{}, map[vpath.Path]bool{}
	var opened, dirs, files, deletions, instead, closed []*step
	for _, s := range a.plan.steps {
		switch {
		case s.done || s.outcome != Applied:
		case s.Status == changes.Deleted:
			deletions = append(deletions, s)
		case record.IsDir(s.Info.Mode) && s.Status == changes.Modified && s.Info.Mode&0o700 == 0o700:
			opened = append(opened, s)
		case record.IsDir(s.Info.Mode) && s.Status == changes.Modified:
			closed = append(closed, s)
		case record.IsDir(s.Info.Mode):
			dirs = append(dirs, s)
		case s.Status == changes.Retyped && record.IsDir(s.BaseMode()):
			instead = append(instead, s)
		default:
			files = append(files, s)
		}
	}
	slices.Reverse(deletions)
	slices.SortStableFunc(files, func(a, b *step) int { return gitRank(a.Path) - gitRank(b.Path) })
	deletions = a.takeFirst(deletions)
	a.failed()
	a.each(ctx, opened, a.chmod)
	a.each(ctx, dirs, a.makeDir)
	a.files(ctx, files)
	a.each(ctx, a.first, a.remove) // without a file to place
	a.plan.holdBack()
	// A rename is an addition and a deletion. If the addition failed, the deletion must not
	// happen.
	a.stopped = a.stopped || a.failure != nil || a.own != nil
	a.each(ctx, deletions, a.remove)
	a.each(ctx, instead, a.clearDir)
	a.files(ctx, instead)
	a.each(ctx, closed, a.chmod)
	a.finishDirs()
	return a.end()
}

// end ends the apply after its steps.
func (a *applier) end() error {
	if a.undone && a.plan.txn != nil {
		return a.plan.rollBack(a.failure)
	}
	return errors.Join(a.failure, a.settle())
}

// takeFirst takes the deletions that come before the files, and returns the others: a journal
// must never be beside another database than its own.
func (a *applier) takeFirst(deletions []*step) []*step {
	if a.plan.whole {
		a.first, deletions = deletions, nil
	}
	return deletions
}

// each executes the steps in order.
func (a *applier) each(ctx context.Context, steps []*step, do func(*step, changes.Entry) error) {
	for _, s := range steps {
		if !a.mayGoOn(ctx, s) {
			continue
		}
		a.finish(s, a.act(s, do))
	}
}

// mayGoOn reports whether s can still be tried. If not, it marks s as skipped.
func (a *applier) mayGoOn(ctx context.Context, s *step) bool {
	if err := ctx.Err(); err != nil && !a.stopped {
		a.stopped, a.undone = true, true
		a.failure = errors.Join(a.failure, errdefs.New(errdefs.Canceled, "apply: %w", err))
	}
	if a.stopped {
		s.stop(Skipped, "not tried, because an earlier step failed")
		return false
	}
	if parent := a.plan.at[s.Path.Dir()]; parent != nil && (parent.outcome == Failed || parent.outcome == Skipped || parent.outcome == ChangedSinceReview) && s.Status != changes.Deleted {
		s.stop(Skipped, "its directory could not be created")
		return false
	}
	if a.isBroken(s) {
		s.stop(Skipped, PartOfRepository)
		return false
	}
	return s.outcome == Applied
}

// finish records the result of a step.
func (a *applier) finish(s *step, err error) {
	a.tried++
	a.progress(min(a.tried, a.total), a.total)
	if err == nil {
		s.done = true
		a.touched[s.Path.Dir()] = true
		return
	}
	a.breakWhole(s)
	kind := safefs.Kind(err)
	hosts := isHosts(kind, err)
	if !hosts && !errors.Is(err, changes.ErrMoved) && a.hasMovedOn(s) {
		err = ErrBusy // the other errors are a consequence
	}
	switch {
	case a.plan.reviewed != nil && (errors.Is(err, errNotReviewed) || errors.Is(err, ErrBusy)):
		s.stop(ChangedSinceReview, nowElse)
		return
	case errors.Is(err, changes.ErrMoved):
		kind = errdefs.Precondition
		s.conflict(conflict.ChangedMeanwhile, "%s", err)
	case errors.Is(err, unix.EIO):
		kind = record.DiskKind(err)
		s.stop(Failed, "input/output error on the disk of the source or of the state directory; see the kernel log")
	case errdefs.KindOf(err) != errdefs.Internal:
		kind = errdefs.KindOf(err)
		s.stop(Failed, "%s", err)
	default:
		kind = record.DiskKind(err)
		s.stop(Failed, "%s", record.UnwrapErrno(err))
	}
	a.keep(s, kind, errors.Is(err, ErrBusy), hosts)
	if kind == errdefs.Exhausted || errors.Is(err, unix.EROFS) {
		a.stopped, a.undone = true, true
	}
}

// isHosts reports whether the host failed, without the influence of a command.
func isHosts(kind errdefs.Kind, err error) bool {
	return kind == errdefs.Exhausted || kind == errdefs.Unavailable || errors.Is(err, unix.EROFS)
}

// keep keeps the failure of a step, unless it has one of the same or a higher precedence.
// hosts says that the host failed, without the influence of a command.
func (a *applier) keep(s *step, kind errdefs.Kind, busy, hosts bool) {
	switch {
	case busy:
		a.own = cmp.Or(a.own, errdefs.New(kind, "apply %s: %w", s.Path, ErrBusy))
	case kind == errdefs.Denied && !hosts:
		if a.own == nil || errors.Is(a.own, ErrBusy) {
			a.own = errdefs.New(kind, "apply %s: %s", s.Path, s.reason)
		}
	case a.failure == nil:
		a.failure = errdefs.New(kind, "apply %s: %s", s.Path, s.reason)
	}
}

// hasMovedOn reports whether the running sandbox has changed or removed the delta's entry
// since the plan was made.
func (a *applier) hasMovedOn(s *step) bool {
	if a.work.Lock != nil {
		return false
	}
	same, err := s.Version().Holds(a.work.Stack, s.Path)
	return err == nil && !same
}

// check checks the source's entry again directly before its replacement, and returns it.
// Errors: ErrMoved.
func (a *applier) check(s *step, e changes.Entry) (*unix.Stat_t, error) {
	now, err := e.Stat()
	if err != nil || now == nil && s.Base != nil && s.Base.Absent {
		return nil, err
	}
	fresh, err := a.work.IsFreshIn(e, s.Path, s.Base)
	if err == nil && !fresh {
		err = changes.ErrMoved
	}
	return now, err
}

// makeDir makes a directory. If the final mode does not let the owner fill it, it gets that
// mode later.
func (a *applier) makeDir(s *step, e changes.Entry) error {
	if s.remade {
		a.late = append(a.late, s)
		return nil
	}
	before, err := a.check(s, e)
	if err != nil {
		return err
	}
	mode := s.Info.Mode & record.StickyBits
	if mode&changes.OwnerBits != changes.OwnerBits {
		a.late = append(a.late, s)
		a.work.Unfinished[s.Path] = mode
	}
	return e.MakeDir(changes.Look{Mode: mode | changes.OwnerBits}, before)
}

// finishDirs sets the final modes of directories after their content was applied.
func (a *applier) finishDirs() {
	for _, s := range slices.Backward(a.late) {
		if !s.done {
			continue
		}
		if err := a.act(s, a.chmod); err != nil {
			s.done = false
			a.finish(s, err)
			continue
		}
		delete(a.work.Unfinished, s.Path)
	}
}

func (a *applier) chmod(s *step, e changes.Entry) error {
	now, err := e.Stat()
	if err != nil || now == nil {
		return errors.Join(err, changes.ErrMoved)
	}
	return e.Chmod(now, s.Info.Mode&record.StickyBits)
}

func (a *applier) remove(s *step, e changes.Entry) error {
	before, err := a.check(s, e)
	switch {
	case err != nil:
		return err
	case record.IsDir(s.BaseMode()):
		return e.RemoveDir()
	}
	return e.Remove(before)
}

// clearDir removes the empty directory that s replaces.
func (a *applier) clearDir(s *step, e changes.Entry) error {
	if err := e.RemoveDir(); err != nil {
		return err
	}
	s.Base = &layer.Base{Absent: true}
	return nil
}

// settle makes the changed names durable and then drops the applied entries from the delta.
func (a *applier) settle() error {
	if err := a.syncNames(); err != nil {
		return errdefs.New(record.DiskKind(err), "apply: the applied changes may not be durable yet and stay in the delta: %w", err)
	}
	versions, all := a.settled()
	if err := a.plan.commit(versions); err != nil {
		return err
	}
	failpoint.At("sync: settled")
	// In this order, so that a crash leaves no change without a record in the audit log.
	if err := errors.Join(a.tell(), a.plan.rest.MarkTold()); err != nil {
		return err
	}
	failpoint.At("sync: told")
	err := a.work.ApplyLock.Forgetting()
	if err != nil {
		return err
	}
	a.stale, err = a.drop(versions, all)
	err = record.ExplainFull(err)
	a.stale = slices.DeleteFunc(a.stale, func(p vpath.Path) bool { return a.plan.at[p] != nil && a.plan.at[p].keepsRest() })
	if a.dropped = err == nil; a.dropped {
		failpoint.At("sync: forgotten")
		err = a.plan.rest.Remove()
	}
	return err
}

// settled returns the versions that the delta drops. all says that these are all changes of the
// plan.
func (a *applier) settled() (versions []changes.Version, all bool) {
	versions = make([]changes.Version, 0, len(a.plan.steps))
	all = true
	for _, s := range a.plan.steps {
		all = all && s.done
		switch {
		case s.done && s.keepsRest():
			all = false
			// A version that the delta cannot have: it drops nothing, and has a new base.
			versions = append(versions, changes.Version{Path: s.Version().Path, Made: s.made})
		case s.done:
			v := s.Version()
			v.Made, v.Merged = s.made, s.merged
			versions = append(versions, v)
		}
	}
	return versions, all
}

func (a *applier) syncNames() error {
	if len(a.touched) > fewFiles {
		return a.syncAll()
	}
	for dir := range a.touched {
		err := a.work.Tree.Sync(dir)
		switch {
		case changes.IsWayGone(err):
			// removed or replaced since, so it has no names to lose
		case errors.Is(err, unix.EACCES):
			return a.syncAll()
		case err != nil:
			return err
		}
	}
	return nil
}

// syncAll writes the whole file system of the source to the disk.
func (a *applier) syncAll() error {
	fd, err := a.work.Tree.OpenDir(vpath.Root, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Syncfs(fd)
}

// failed keeps the failures that were known before the first step.
func (a *applier) failed() {
	for _, s := range a.plan.steps {
		if s.outcome == Failed && !s.done {
			a.keep(s, errdefs.Denied, false, true)
		}
	}
}
