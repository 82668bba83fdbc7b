package sandbox

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/vpath"
)

// turn is the right to apply or discard, one command at a time also while a
// supervisor has the sandbox's lock. Its file lists the paths an apply is
// about to touch, so that the next turn finds what a killed one left in the
// source under temporary names.
type turn struct{ file *os.File }

// turnFile is the turn's file in the sandbox's directory.
const turnFile = "apply.lock"

// takeTurn takes the turn and clears up after an apply that was killed.
// Errors: Precondition if another command has it, or if what was left is
// somebody's work.
func (w *work) takeTurn() (*turn, error) {
	s := w.sandbox
	f, err := os.OpenFile(filepath.Join(s.Dir(), turnFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, hostError("sandbox "+s.Name(), err)
	}
	t := &turn{f}
	err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		err = fault.New(fault.Precondition, "sandbox %s: another apply or discard is under way", s.Name())
	case err != nil:
		err = hostError("sandbox "+s.Name(), err)
	default:
		err = w.clearUp(t)
	}
	if err != nil {
		t.end()
		return nil, err
	}
	return t, nil
}

// end gives the turn up, if there is one. What is still listed stays so.
func (t *turn) end() {
	if t != nil {
		t.file.Close()
	}
}

// intend lists, durably, the paths that are about to be touched.
func (t *turn) intend(paths []vpath.Path) error {
	var list strings.Builder
	for _, p := range paths {
		list.WriteString(p.String() + "\n")
	}
	_, err := t.file.WriteAt([]byte(list.String()), 0)
	if err == nil {
		err = t.file.Sync()
	}
	if err != nil {
		return hostError("apply", errors.Join(err, t.done()))
	}
	return nil
}

// done says that nothing is left under a temporary name.
func (t *turn) done() error { return t.file.Truncate(0) }

// growth is what the entry counts for, with what stands under its temporary
// name.
func (e entry) growth() (g Growth) {
	for _, name := range []string{e.name, e.temp} {
		if st, err := statEntry(e.dir, name); err == nil && st != nil && !isDir(st.Mode) {
			g.Files++
			g.Bytes += regularSize(st.Mode, st.Size)
		}
	}
	return g
}

// clearUp removes what a killed apply left in the source.
func (w *work) clearUp(t *turn) error {
	list, err := io.ReadAll(t.file)
	if err != nil {
		return hostError("sandbox "+w.sandbox.Name(), err)
	}
	w.resumed = map[vpath.Path]bool{}
	for line := range strings.Lines(string(list)) {
		line, whole := strings.CutSuffix(line, "\n")
		name, err := vpath.Unescape(line)
		if err != nil || !whole {
			continue // it was killed while it wrote the list, before it touched anything
		}
		p, err := vpath.Parse(name)
		if err == nil {
			w.resumed[p] = true
			err = w.clearUpAt(p)
		}
		if err != nil {
			return fault.New(fault.Precondition, "apply %s: %w", vpath.Path(name), err)
		}
	}
	return t.done()
}

func (w *work) clearUpAt(p vpath.Path) error {
	base, err := w.stack.Base(p)
	if err != nil {
		return err
	}
	err = w.tree.at(p, func(e entry) error {
		before := e.growth()
		defer func() {
			after := e.growth()
			w.cleared.Files += after.Files - before.Files
			w.cleared.Bytes += after.Bytes - before.Bytes
		}()
		if base == nil || base.Absent || isDir(base.Mode) {
			// Nothing was ever taken away to make room for it.
			return e.removeTemp()
		}
		return e.recover(func(st *unix.Stat_t) bool { return isBase(base, st) })
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil // its directory is gone
	}
	return err
}
