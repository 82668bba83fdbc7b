package apply

import (
	"cmp"
	"context"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/rights"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// ErrBusy means that the running sandbox changed an entry while it was applied. Another
// apply may succeed.
var ErrBusy = errdefs.New(errdefs.Precondition, "the sandbox is writing to it; apply again, or stop the sandbox")

// batch has files that are staged in the source's file system and not placed yet.
type batch struct {
	taken  []*step // all steps
	steps  []*step // the steps to place
	files  map[*step]*changes.Staged
	linked map[layer.FileID]*changes.Staged
	ahead  map[*step]written
}

// files applies everything except directories. It stages regular files, makes them durable
// together and then places them. It stages a batch while the one before becomes durable. Hard
// links in the delta become hard links within a batch.
func (a *applier) files(ctx context.Context, steps []*step) {
	for b, rest := a.begin(ctx, steps); b != nil; {
		for _, s := range b.taken {
			a.stage(ctx, b, s)
		}
		b.forgetUnused(a)
		var next *batch
		a.commit(ctx, b, func() { next, rest = a.begin(ctx, rest) })
		b = next
	}
}

// begin takes the steps of the next batch, stages what can be staged ahead, and returns the other
// steps. The batch is nil if there are no steps.
func (a *applier) begin(ctx context.Context, steps []*step) (*batch, []*step) {
	if len(steps) == 0 {
		return nil, nil
	}
	most, n, bytes := filesAtOnce(), 0, int64(0)
	for n < len(steps) && (a.plan.whole || n < most && bytes < batchBytes) {
		bytes += steps[n].Info.Size
		n++
	}
	b := &batch{taken: steps[:n], files: map[*step]*changes.Staged{}, linked: map[layer.FileID]*changes.Staged{}}
	b.ahead = a.writeAhead(ctx, b.taken)
	return b, steps[n:]
}

// written is the result of staging a file ahead of its turn.
type written struct {
	file *changes.Staged
	err  error
}

// From manyFiles files on, up to writers goroutines stage them.
const (
	manyFiles = 64
	writers   = 4
)

// writeAhead stages many regular files without hard links concurrently, because the kernel
// takes most of the time. stage then uses the results in order.
func (a *applier) writeAhead(ctx context.Context, steps []*step) map[*step]written {
	if len(steps) < manyFiles || a.stopped {
		return nil
	}
	done := make([]written, len(steps))
	var next atomic.Int64
	var failed atomic.Bool
	var group sync.WaitGroup
	for range min(writers, runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(steps)) && !failed.Load() && ctx.Err() == nil; i = next.Add(1) - 1 {
				s := steps[i]
				if s.outcome != Applied || s.Info.Mode&record.TypeBits != unix.S_IFREG || s.Info.Nlink > 1 || s.SameContent {
					continue
				}
				done[i].err = a.work.Tree.At(s.Path, func(e changes.Entry) (err error) {
					done[i].file, err = a.write(s, e)
					return err
				})
				if done[i].err != nil {
					failed.Store(true)
				}
			}
		})
	}
	group.Wait()
	ahead := make(map[*step]written, len(steps))
	for i, s := range steps {
		if done[i].file != nil || done[i].err != nil {
			ahead[s] = done[i]
		}
	}
	return ahead
}

// forgetUnused removes staged files that were not placed.
func (b *batch) forgetUnused(a *applier) {
	for s, w := range b.ahead {
		if w.file == nil || b.files[s] == w.file {
			continue
		}
		w.file.Close()
		_ = a.work.Tree.At(s.Path, func(e changes.Entry) error { return e.RemoveIfNamed(w.file) })
	}
}

// filesAtOnce returns batchFiles, or a quarter of the process's descriptor limit if that is
// lower: two batches have their files open.
func filesAtOnce() int {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return max(1, batchFiles/128)
	}
	return int(max(1, min(lim.Cur/4, uint64(batchFiles))))
}

// stage prepares one step. It only adds a step that needs no preparation.
func (a *applier) stage(ctx context.Context, b *batch, s *step) {
	if s.outcome == Applied && s.done {
		s.done = false // the directory is removed; now place its replacement
	}
	if !a.mayGoOn(ctx, s) {
		return
	}
	w, ahead := b.ahead[s]
	if !ahead {
		w = a.writeNow(b, s)
	}
	if w.err != nil {
		a.finish(s, w.err)
		return
	}
	b.steps = append(b.steps, s)
	if w.file == nil {
		return
	}
	b.files[s] = w.file
	if s.Info.Nlink > 1 && s.merging == nil {
		b.linked[s.Info.ID] = w.file
	}
}

// writeNow stages one file in its turn, unless it is another name of a staged file, or only
// its mode changes.
func (a *applier) writeNow(b *batch, s *step) (w written) {
	w.err = a.work.Tree.At(s.Path, func(e changes.Entry) (err error) {
		s.inPlace, err = s.isModeOnly(e)
		first := b.linked[s.Info.ID]
		switch {
		case err != nil || s.Info.Mode&record.TypeBits != unix.S_IFREG:
		case s.inPlace:
			err = a.plan.checkInPlace(s)
		case first != nil && s.merging == nil:
			err = a.plan.checkSum(s, first.Sum)
		default:
			w.file, err = a.write(s, e)
		}
		return err
	})
	return w
}

// isModeOnly reports whether only the mode of the source's file must change. It returns
// false for a file with other names: in the view these are other files and keep their mode,
// so the file must be replaced.
func (s *step) isModeOnly(e changes.Entry) (bool, error) {
	if !s.SameContent {
		return false, nil
	}
	now, err := e.Stat()
	return now != nil && now.Nlink == 1, err
}

// write stages a copy of the delta's file. Several goroutines may call it.
func (a *applier) write(s *step, e changes.Entry) (*changes.Staged, error) {
	before, err := a.check(s, e)
	if err != nil {
		return nil, err
	}
	var src *os.File
	err = rights.AsOwner(func() (err error) {
		src, err = a.work.Stack.OpenDelta(s.Path)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer src.Close()
	l := changes.Look{Mode: s.Info.Mode & record.PermBits, Mtime: s.Info.Mtime, Before: before}
	file, err := a.stageFrom(s, e, src, l)
	if file == nil {
		return nil, err
	}
	if err := cmp.Or(err, isUnchanged(src, s)); err != nil {
		file.Close()
		return nil, cmp.Or(e.RemoveIfNamed(file), err)
	}
	a.plan.sum(s, file)
	return file, nil
}

// sum adds the digest of a staged file, unless it is known or the file is large. The journal has
// it: without it, undo refuses a file that was only touched.
func (p *plan) sum(s *step, file *changes.Staged) {
	if p.txn == nil || file.Sum != "" || s.Info.Size > layer.ContentMax {
		return
	}
	if _, err := file.File.Seek(0, io.SeekStart); err == nil {
		file.Sum, _ = manifest.SumOf(file.File)
	}
}

// isUnchanged returns an error if the original has changed during the copy.
func isUnchanged(src *os.File, s *step) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(src.Fd()), &st); err != nil {
		return err
	}
	if st.Size != s.Info.Size || st.Mtim != s.Info.Mtime || st.Ino != s.Info.ID.Ino {
		return ErrBusy
	}
	return nil
}

// commit places a batch. It calls meanwhile, once, while the batch becomes durable.
func (a *applier) commit(ctx context.Context, b *batch, meanwhile func()) {
	durable := make(chan error, 1)
	go func() { durable <- a.syncBatch(b) }()
	meanwhile()
	err := <-durable
	if err == nil {
		err = a.listPlacing(b.steps, b.staged)
	}
	failpoint.At("sync: staged")
	if err == nil {
		err = a.removeFirst(ctx)
	}
	a.placeAll(b, err)
	for _, s := range b.steps {
		if s.done && s.Info.Nlink > 1 { // each new link changes the file's ctime
			_ = a.act(s, func(*step, changes.Entry) error { return nil })
		}
	}
	for _, f := range b.files {
		f.Close()
	}
}

// removeFirst executes the deletions that come first. Errors: Precondition if one of them was
// not possible, or if all that is to be placed together is not staged.
func (a *applier) removeFirst(ctx context.Context) error {
	if a.plan.whole && !a.plan.isComplete() {
		return errdefs.New(errdefs.Precondition, "the files of a database are kept together, and another one cannot be")
	}
	steps := a.first
	a.first = nil
	a.each(ctx, steps, a.remove)
	for _, s := range steps {
		if !s.done {
			return errdefs.New(errdefs.Precondition, "%s could not be removed: %s", changes.Quote(s.Path), s.reason)
		}
	}
	return nil
}

// unstage removes the staged file of s.
func (b *batch) unstage(a *applier, s *step) {
	if file := b.files[s]; file != nil {
		_ = a.work.Tree.At(s.Path, func(e changes.Entry) error { return e.RemoveIfNamed(file) })
	}
}

// staged returns the staged file of s, or nil. A file of which only the mode changes stays where it
// is, also if it has a staged file as another name in the view.
func (b *batch) staged(s *step) *changes.Staged {
	if s.inPlace {
		return nil
	}
	return cmp.Or(b.files[s], b.linked[s.Info.ID])
}

func (a *applier) syncBatch(b *batch) error {
	if len(b.files) > fewFiles {
		return a.syncAll()
	}
	for _, f := range b.files {
		if err := f.File.Sync(); err != nil {
			return err
		}
	}
	return nil
}

// place puts one entry into the source, in one step.
func (a *applier) place(b *batch, s *step, e changes.Entry) error {
	before, err := a.check(s, e)
	if err != nil {
		return err
	}
	l := changes.Look{Mode: s.Info.Mode & record.PermBits, Mtime: s.Info.Mtime, Before: before}
	switch s.Info.Mode & record.TypeBits {
	case unix.S_IFREG:
		switch file := b.files[s]; {
		case s.inPlace:
			return e.Chmod(before, l.Mode)
		case file != nil:
			return e.Place(file, before)
		}
		return e.Link(b.linked[s.Info.ID], before)
	case unix.S_IFLNK:
		target, err := a.plan.target(s)
		if err = cmp.Or(err, a.plan.checkTarget(s, target)); err != nil {
			return err
		}
		return e.MakeLink(target, before)
	case unix.S_IFIFO:
		return e.MakeFIFO(l)
	}
	return errdefs.New(errdefs.Unsupported, "a %s cannot be applied", record.TypeName(s.Info.Mode))
}
