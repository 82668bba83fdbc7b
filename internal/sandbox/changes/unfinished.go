package changes

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// OwnerBits are what a directory's owner needs to fill it. Apply makes a
// directory with these and takes away what is too much when it is full.
const OwnerBits = 0o700

// noteUnfinished finds out whether p is a directory that a killed apply made and
// did not come round to give its mode. base is what the delta records for p.
func (w *Work) noteUnfinished(p vpath.Path, base *layer.Base) error {
	if base != nil && !base.Absent && record.IsDir(base.Mode) {
		return nil // the source's own: its mode changes in one step
	}
	ours, err := w.Stack.Lookup(p)
	switch {
	case errdefs.Is(err, errdefs.NotFound), errdefs.Is(err, errdefs.Precondition):
		return nil // the delta has it no more
	case err != nil:
		return err
	case ours.Origin == layer.Source || !record.IsDir(ours.Mode) || ours.Mode&OwnerBits == OwnerBits:
		return nil
	}
	theirs, err := w.Stack.SourceInfo(p)
	if err == nil && record.IsDir(theirs.Mode) && theirs.Mode&record.StickyBits == ours.Mode&record.StickyBits|OwnerBits {
		w.Unfinished[p] = ours.Mode & record.StickyBits
	}
	return record.UnlessDenied(err)
}

// FinishDirs gives those of the changed directories their mode that a killed
// apply left without: the delta is about to forget them.
func (w *Work) FinishDirs(changes []Change) error {
	for _, c := range slices.Backward(changes) {
		mode, is := w.Unfinished[c.Path]
		if !is {
			continue
		}
		err := w.Tree.At(c.Path, func(e Entry) error {
			now, err := e.Stat()
			if err != nil || now == nil {
				return err
			}
			return e.Chmod(now, mode)
		})
		if err != nil && !errors.Is(err, ErrMoved) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			return record.HostError("mode of "+c.Path.String(), err)
		}
		delete(w.Unfinished, c.Path)
	}
	return w.EndApply()
}
