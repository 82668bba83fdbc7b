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

// OwnerBits are the permission bits that a directory's owner needs to fill it. Apply makes
// a directory with these, and sets the final mode after its content.
const OwnerBits = 0o700

// noteUnfinished checks whether p is a directory that a killed apply made without its final
// mode. base is the recorded base of p.
func (w *Work) noteUnfinished(p vpath.Path, base *layer.Base) error {
	if base != nil && !base.Absent && record.IsDir(base.Mode) {
		return nil // a directory of the source, of which the mode changes in one step
	}
	ours, err := w.Stack.Lookup(p)
	switch {
	case errdefs.Is(err, errdefs.NotFound), errdefs.Is(err, errdefs.Precondition):
		return nil // the delta no longer has it
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

// FinishDirs sets the modes of the changed directories that a killed apply left without.
// Call it before the delta drops them.
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
