package sandbox

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/layer"
	"github.com/agentfense/agentfense/internal/vpath"
)

// ownerBits are what a directory's owner needs to fill it. Apply makes a
// directory with these and takes away what is too much when it is full.
const ownerBits = 0o700

// noteUnfinished finds out whether p is a directory that a killed apply made and
// did not come round to give its mode. base is what the delta records for p.
func (w *work) noteUnfinished(p vpath.Path, base *layer.Base) error {
	if base != nil && !base.Absent && isDir(base.Mode) {
		return nil // the source's own: its mode changes in one step
	}
	ours, err := w.stack.Lookup(p)
	switch {
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Precondition):
		return nil // the delta has it no more
	case err != nil:
		return err
	case ours.Origin == layer.Source || !isDir(ours.Mode) || ours.Mode&ownerBits == ownerBits:
		return nil
	}
	theirs, err := w.stack.SourceInfo(p)
	if err == nil && isDir(theirs.Mode) && theirs.Mode&stickyBits == ours.Mode&stickyBits|ownerBits {
		w.unfinished[p] = ours.Mode & stickyBits
	}
	return unlessDenied(err)
}

// resume has the apply go on with a directory that a killed one made: there is
// nothing to lose.
func (w *work) resume(s *step) {
	if _, s.remade = w.unfinished[s.Path]; s.remade {
		s.fresh, s.Base = true, &layer.Base{Absent: true}
	}
}

// finishDirs gives those of the changed directories their mode that a killed
// apply left without: the delta is about to forget them.
func (w *work) finishDirs(changes []change) error {
	for _, c := range slices.Backward(changes) {
		mode, is := w.unfinished[c.Path]
		if !is {
			continue
		}
		err := w.tree.at(c.Path, func(e entry) error {
			now, err := e.stat()
			if err != nil || now == nil {
				return err
			}
			return e.chmod(now, mode)
		})
		if err != nil && !errors.Is(err, errMoved) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			return hostError("mode of "+c.Path.String(), err)
		}
		delete(w.unfinished, c.Path)
	}
	return w.endTurn()
}
