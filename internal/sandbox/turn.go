package sandbox

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/hostfile"
	"github.com/agentfense/agentfense/internal/layer"
	"github.com/agentfense/agentfense/internal/vpath"
)

// turn is the right to apply or discard, one command at a time also while a
// supervisor has the sandbox's lock. Its file lists the paths an apply is
// about to touch, so that the next turn finds what a killed one left in the
// source: files under temporary names, and directories without their mode. Of what
// it was about to place it says what it looks like (see placing). The list stays
// until nothing of that is left.
type turn struct {
	file *os.File
	size int64 // of the list, in whole lines
	mark int64 // where the line is that forgetting writes
}

// turnFile is the turn's file in the sandbox's directory.
const turnFile = "apply.lock"

func (w *work) turnPath() string { return filepath.Join(w.sandbox.Dir(), w.turnFile) }

// takeTurn takes the turn and clears up after an apply that was killed.
// Errors: Precondition if another command has it, or if what was left is
// somebody's work.
func (w *work) takeTurn() error {
	s := w.sandbox
	f, err := os.OpenFile(w.turnPath(), os.O_RDWR|os.O_CREATE, 0o600)
	if w.lock != nil && hostfile.Kind(err) == fault.Exhausted {
		return nil // there is no list to make, nor one that was left; the lock keeps others away
	}
	if err != nil {
		return hostError("sandbox "+s.Name(), err)
	}
	t := &turn{file: f}
	err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		err = fault.New(fault.Precondition, "sandbox %s: another apply or discard is under way", s.Name())
	case err != nil:
		err = hostError("sandbox "+s.Name(), err)
	case !isAt(f, w.turnPath()):
		err = fault.New(fault.Precondition, "sandbox %s: another apply has just ended; try again", s.Name())
	default:
		w.turn = t
		err = w.clearUp()
	}
	if err != nil {
		w.turn = nil
		f.Close()
	}
	return err
}

// giveTurnUp gives the turn up, if there is one. What is still listed stays so.
func (w *work) giveTurnUp() {
	if w.turn == nil {
		return
	}
	if w.elsewhere && w.turn.size == 0 {
		_ = os.Remove(w.turnPath()) // an empty list more does no harm
	}
	w.turn.file.Close()
}

// intend lists, durably, the paths that are about to be touched, behind those
// that are listed already.
func (t *turn) intend(paths []vpath.Path) error {
	if t == nil {
		return hostError("apply", unix.ENOSPC)
	}
	lines := make([]string, len(paths), len(paths)+1)
	for i, p := range paths {
		lines[i] = p.String()
	}
	err := t.append(append(lines, notForgetting))
	t.mark = t.size - int64(len(notForgetting)+1)
	return err
}

// forgetting says, durably, that the delta is about to forget what was placed. The
// room for that is taken already.
func (t *turn) forgetting() error {
	_, err := t.file.WriteAt([]byte(forgetting), t.mark)
	if err == nil {
		err = t.file.Sync()
	}
	if err != nil {
		return hostError("apply", err)
	}
	return nil
}

// append adds lines to the list, durably, all or none.
func (t *turn) append(lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	var list strings.Builder
	for _, line := range lines {
		list.WriteString(line + "\n")
	}
	err := t.file.Truncate(t.size)
	n := 0
	if err == nil {
		n, err = t.file.WriteAt([]byte(list.String()), t.size)
	}
	if err == nil {
		err = t.file.Sync()
	}
	if err != nil {
		return hostError("apply", errors.Join(err, t.file.Truncate(t.size)))
	}
	t.size += int64(n)
	return nil
}

// endTurn forgets the list, unless a directory still lacks its mode.
func (w *work) endTurn() error {
	if len(w.unfinished) > 0 || w.turn == nil {
		return nil
	}
	w.turn.size = 0
	return w.turn.file.Truncate(0)
}

// growth is what the entry counts for, with what stands under its temporary
// name.
func (e entry) growth() (g Growth) {
	for _, name := range []string{e.name, e.temp} {
		if st, err := statEntry(e.dir, name); err == nil && st != nil {
			g.add(st.Mode, st.Size, 1)
		}
	}
	return g
}

// clearUp removes what a killed apply left in the source.
func (w *work) clearUp() error {
	var err error
	if w.turn.size, err = w.readTurn(w.turn.file, w.clearTemp); err != nil {
		return err
	}
	if err := w.adoptPlaced(); err != nil {
		return err
	}
	return w.endTurn()
}

// peekTurn finds out what a killed apply has left and changes nothing.
func (w *work) peekTurn() error {
	f, err := os.Open(w.turnPath())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return hostError("sandbox "+w.sandbox.Name(), err)
	}
	defer f.Close()
	_, err = w.readTurn(f, func(vpath.Path, *layer.Base) error { return nil })
	return err
}

// readTurn calls clear with each path that a killed apply has listed and what the
// delta records for it, and notes the directories that lack their mode. It
// returns the size of the whole lines.
func (w *work) readTurn(f io.Reader, clear func(vpath.Path, *layer.Base) error) (size int64, err error) {
	list, err := io.ReadAll(f)
	if err != nil {
		return 0, hostError("sandbox "+w.sandbox.Name(), err)
	}
	if len(list) == 0 {
		return 0, nil
	}
	bases, err := w.stack.Bases()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(list)) {
		text, whole := strings.CutSuffix(line, "\n")
		if !whole {
			break // it was killed while it wrote the list, before it touched what this line names
		}
		size += int64(len(line))
		if strings.HasPrefix(text, "{") {
			w.notePlacing(text)
			continue
		}
		if text == forgetting || text == notForgetting {
			w.forgot = w.forgot || text == forgetting
			continue
		}
		name, err := vpath.Unescape(text)
		if err != nil {
			continue
		}
		p, err := vpath.Parse(name)
		if err == nil && !w.resumed[p] {
			w.resumed[p] = true
			err = w.clearUpAt(p, bases, clear)
		}
		if err != nil {
			return 0, fault.New(fault.Precondition, "apply %s: %w", vpath.Path(name), err)
		}
	}
	return size, nil
}

func (w *work) clearUpAt(p vpath.Path, bases map[vpath.Path]layer.Base, clear func(vpath.Path, *layer.Base) error) error {
	var base *layer.Base
	if b, recorded := bases[p]; recorded {
		base = &b
	}
	if err := clear(p, base); err != nil {
		return err
	}
	return w.noteUnfinished(p, base)
}

// clearTemp removes what stands under the temporary name of p.
func (w *work) clearTemp(p vpath.Path, base *layer.Base) error {
	err := w.tree.at(p, func(e entry) error {
		before := e.growth()
		defer func() {
			after := e.growth()
			w.cleared.Files += after.Files - before.Files
			w.cleared.Bytes += after.Bytes - before.Bytes
			w.cleared.Dirs += after.Dirs - before.Dirs
		}()
		if base == nil || base.Absent || isDir(base.Mode) {
			// Nothing was ever taken away to make room for it.
			return e.removeTemp()
		}
		return e.recover(func(name string, st *unix.Stat_t) bool {
			return isBase(base, st) || w.elsewhere && hasBaseContent(base, e.dir, name, st)
		})
	})
	if isWayGone(err) {
		return nil // its directory is gone
	}
	return err
}
