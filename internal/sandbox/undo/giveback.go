package undo

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// giveBack gives the sandbox the changes of rest again, all in one step: it freezes the delta,
// makes them in another one above that, and exchanges the two. A process that is killed before has
// given back nothing. It reports whether the delta could have all of them.
func (d *delta) giveBack(e *history.Entry, rest givingBack) (all bool, err error) {
	if err := snapshot.RequireVersion(d.sandbox); err != nil {
		return false, err
	}
	release, err := d.sandbox.Home.HoldLayers()
	if err != nil {
		return false, err
	}
	defer release()
	below, err := d.work.Stack.Freeze()
	if err != nil {
		return false, err
	}
	failpoint.At("undo: frozen")
	next, err := layer.PrepareHead(d.sandbox.Home.LayerStore(), below, "")
	if err != nil {
		return false, err
	}
	all, err = d.fill(next.Dir(), e, rest)
	if err != nil {
		next.Abandon()
		return false, err
	}
	return all, next.Put(d.sandbox.LayersDir())
}

// fill makes the changes of rest in the head dir.
func (d *delta) fill(dir string, e *history.Entry, rest givingBack) (all bool, err error) {
	stack, err := changes.OpenLayers(d.sandbox, d.work.Tree.Root, layer.Options{Dir: dir})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, stack.Close()) }()
	g := giver{stack}
	for _, i := range rest.gone {
		if err := g.remove(&e.Steps[i]); err != nil {
			return false, err
		}
		failpoint.At("undo: one removed")
	}
	all = true
	for _, i := range rest.made {
		ok, err := g.make(e, i)
		if err != nil {
			return false, err
		}
		all = all && ok
		failpoint.At("undo: one made")
	}
	return all, nil
}

// giver makes in a stack what steps have undone.
type giver struct{ stack *layer.Stack }

// remove removes in the delta what the sandbox had removed.
func (g giver) remove(s *history.Step) error {
	at, err := s.At()
	if err != nil {
		return err
	}
	if s.After.IsDir() {
		err = g.stack.Rmdir(at, nil)
		if errdefs.Is(err, errdefs.Precondition) {
			return nil // it contains what the sandbox did not remove
		}
	} else {
		_, err = g.stack.Unlink(at, false)
	}
	if errdefs.Is(err, errdefs.NotFound) {
		return nil
	}
	return err
}

// make makes in the delta what the sandbox had made. It returns false if the delta cannot have it.
func (g giver) make(e *history.Entry, i int) (bool, error) {
	s := &e.Steps[i]
	at, err := s.At()
	if err != nil {
		return false, err
	}
	was, mode := s.Before, s.Before.Mode&record.StickyBits
	stays := s.After != nil && s.After.Mode&record.TypeBits == was.Mode&record.TypeBits
	switch was.Mode & record.TypeBits {
	case unix.S_IFDIR:
		if !stays {
			_, err = g.stack.Mkdir(at, mode)
		}
	case unix.S_IFLNK:
		target, unescapeErr := vpath.Unescape(was.Target)
		if unescapeErr != nil {
			return false, unescapeErr
		}
		if stays {
			_, err = g.stack.Unlink(at, false)
		}
		if err == nil {
			_, err = g.stack.Symlink(target, at)
		}
		return true, err
	case unix.S_IFREG:
		err = g.write(e, i, at, stays)
	case unix.S_IFIFO:
		_, err = g.stack.Mknod(at, unix.S_IFIFO|was.Mode&record.PermBits)
	default:
		return false, nil
	}
	if err != nil {
		return false, unlessInTheWay(err)
	}
	attributes := layer.SetAttr{Mode: &mode}
	if !was.IsDir() {
		attributes.Mtime = &was.Mtime
	}
	_, err = g.stack.SetAttr(at, attributes)
	return true, err
}

// unlessInTheWay returns nil for an error which means that the sandbox has something else there.
func unlessInTheWay(err error) error {
	if errdefs.Is(err, errdefs.NotFound) || errdefs.Is(err, errdefs.Precondition) || errdefs.Is(err, errdefs.Exists) {
		return nil
	}
	return err
}

// write writes the content of a regular file.
func (g giver) write(e *history.Entry, i int, at vpath.Path, exists bool) (err error) {
	if e.IsModeOnly(i) {
		_, err := g.stack.CopyUp(at)
		return err
	}
	content, err := e.OpenImage(i)
	if err != nil {
		return errdefs.New(errdefs.Internal, "%w", err) // also if it is missing
	}
	defer content.Close()
	var f *layer.File
	if exists {
		f, _, err = g.stack.Open(at, true)
	} else {
		f, _, err = g.stack.Create(at, e.Steps[i].Before.Mode&record.PermBits)
	}
	if err != nil {
		return err
	}
	n, err := io.Copy(io.NewOffsetWriter(f, 0), content)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		_, err = g.stack.SetAttr(at, layer.SetAttr{Size: &n})
	}
	return err
}
