package changes

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// applyLock is the right to apply or discard. One command has it at a time, also while a
// supervisor has the sandbox's lock. Its file lists the paths that an apply will change, so
// that the next apply or discard finds the leftovers of a killed one in the source: files
// under temporary names, and directories without their mode. It also describes the entries
// that the apply will place (see notePlacing). The list stays until no leftover exists.
type applyLock struct {
	file *os.File
	size int64 // of the list, up to its last complete line
	mark int64 // offset of the line that Forgetting writes
	// Deferred says that a journal protects the apply until Sync: Append need not be durable.
	Deferred bool
}

// ApplyLockPath returns the path of the apply lock.
func (w *Work) ApplyLockPath() string { return filepath.Join(w.Sandbox.ChangesDir(), w.ApplyLockFile) }

// takeApplyLock takes the apply lock and removes the leftovers of a killed apply. Errors:
// Precondition if another command has it, or if a leftover may be another program's file.
func (w *Work) takeApplyLock() error {
	s := w.Sandbox
	f, err := os.OpenFile(w.ApplyLockPath(), os.O_RDWR|os.O_CREATE, 0o600)
	if w.Lock != nil && safefs.Kind(err) == errdefs.Exhausted {
		return nil // without a source there is no list; the sandbox's lock excludes other commands
	}
	if err != nil {
		return record.HostError("sandbox "+s.Name(), err)
	}
	t := &applyLock{file: f}
	err = record.Flock(f, unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		err = errdefs.New(errdefs.Precondition, "sandbox %s: another apply or discard is under way", s.Name())
	case err != nil:
		err = record.HostError("sandbox "+s.Name(), err)
	case !record.IsAt(f, w.ApplyLockPath()):
		err = errdefs.New(errdefs.Precondition, "sandbox %s: another apply has just ended; try again", s.Name())
	default:
		w.ApplyLock = t
		err = w.clearUp()
	}
	if err != nil {
		w.ApplyLock = nil
		f.Close()
	}
	return err
}

// releaseApplyLock releases the apply lock, if it is held. A list that is not empty stays.
func (w *Work) releaseApplyLock() {
	if w.ApplyLock == nil {
		return
	}
	if w.Elsewhere && w.ApplyLock.size == 0 {
		_ = os.Remove(w.ApplyLockPath()) // a leftover empty list does no harm
	}
	w.ApplyLock.file.Close()
}

// Intend adds the paths that an apply will change to the list, as Append.
func (t *applyLock) Intend(paths []vpath.Path) error {
	lines := make([]string, len(paths), len(paths)+2)
	for i, p := range paths {
		lines[i] = p.String()
	}
	if t.Deferred {
		lines = append(lines, journaled)
	}
	err := t.Append(append(lines, notForgetting))
	t.mark = t.size - int64(len(notForgetting)+1)
	return err
}

// Forgetting records, durably, that the delta will now drop the placed entries. It
// overwrites a reserved line, and so needs no disk space.
func (t *applyLock) Forgetting() error {
	_, err := t.file.WriteAt([]byte(forgetting), t.mark)
	if err == nil {
		err = t.file.Sync()
	}
	if err != nil {
		return record.HostError("apply", err)
	}
	return nil
}

// Append adds all lines to the list, durably unless that is deferred, or none.
func (t *applyLock) Append(lines []string) error {
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
	if err == nil && !t.Deferred {
		err = t.file.Sync()
	}
	if err != nil {
		return record.HostError("apply", errors.Join(err, t.file.Truncate(t.size)))
	}
	t.size += int64(n)
	return nil
}

// Sync makes the list durable.
func (t *applyLock) Sync() error {
	if err := t.file.Sync(); err != nil {
		return record.HostError("apply", err)
	}
	return nil
}

// EndApply clears the list, unless the mode of a directory is still missing.
func (w *Work) EndApply() error {
	if len(w.Unfinished) > 0 || w.ApplyLock == nil {
		return nil
	}
	w.ApplyLock.size = 0
	return w.ApplyLock.file.Truncate(0)
}

// growth returns the size of the entry and of its temporary file.
func (e Entry) growth() (g SizeDelta) {
	for _, name := range []string{e.Name, e.temp} {
		if st, err := statEntry(e.Dir, name); err == nil && st != nil {
			g.Add(st.Mode, st.Size, 1)
		}
	}
	return g
}

// clearUp removes the leftovers of a killed apply from the source.
func (w *Work) clearUp() error {
	var err error
	if w.ApplyLock.size, err = w.readApplyList(w.ApplyLock.file, w.clearTemp); err != nil {
		return err
	}
	if err := w.rebasePlaced(); err != nil {
		return err
	}
	return w.EndApply()
}

// peekApplyLock finds the leftovers of a killed apply and changes nothing.
func (w *Work) peekApplyLock() error {
	f, err := os.Open(w.ApplyLockPath())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return record.HostError("sandbox "+w.Sandbox.Name(), err)
	}
	defer f.Close()
	_, err = w.readApplyList(f, func(vpath.Path, *layer.Base) error { return nil })
	return err
}

// readApplyList calls clear with each path that a killed apply has listed and its recorded
// base. It also records the directories without their mode. It returns the size of the
// complete lines.
func (w *Work) readApplyList(f io.Reader, clear func(vpath.Path, *layer.Base) error) (size int64, err error) {
	list, err := io.ReadAll(f)
	if err != nil {
		return 0, record.HostError("sandbox "+w.Sandbox.Name(), err)
	}
	if len(list) == 0 {
		return 0, nil
	}
	bases, err := w.Stack.Bases()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(list)) {
		text, whole := strings.CutSuffix(line, "\n")
		if !whole {
			break // killed while it wrote the list, before it changed this path
		}
		size += int64(len(line))
		if text == journaled {
			w.journaled = true
			continue
		}
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
		if err == nil && !w.Resumed[p] {
			w.Resumed[p] = true
			err = w.clearUpAt(p, bases, clear)
		}
		if err != nil {
			return 0, errdefs.New(errdefs.Precondition, "apply %s: %w", vpath.Path(name), err)
		}
	}
	return size, nil
}

func (w *Work) clearUpAt(p vpath.Path, bases map[vpath.Path]layer.Base, clear func(vpath.Path, *layer.Base) error) error {
	var base *layer.Base
	if b, recorded := bases[p]; recorded {
		base = &b
	}
	if err := clear(p, base); err != nil {
		return err
	}
	return w.noteUnfinished(p, base)
}

// clearTemp removes the temporary file of p.
func (w *Work) clearTemp(p vpath.Path, base *layer.Base) error {
	err := w.Tree.At(p, func(e Entry) error {
		before := e.growth()
		defer func() {
			after := e.growth()
			w.Cleared.Files += after.Files - before.Files
			w.Cleared.Bytes += after.Bytes - before.Bytes
			w.Cleared.Dirs += after.Dirs - before.Dirs
		}()
		if base == nil || base.Absent || record.IsDir(base.Mode) {
			// The apply never removes an entry for it.
			return e.removeTemp()
		}
		return e.recover(func(name string, st *unix.Stat_t) bool {
			return isBase(base, st) || w.Elsewhere && HasBaseContent(base, e.Dir, name, st)
		})
	})
	if IsWayGone(err) {
		return nil // its directory no longer exists
	}
	return err
}

// placed returns the source's entry at p, if a killed apply has placed it and the sandbox
// has changed its entry since, else nil.
func (w *Work) placed(p vpath.Path) *layer.Base {
	v, listed := w.placing[p]
	if !listed || v.Merged {
		return nil
	}
	info, err := w.Stack.Lookup(p)
	// With a journal, what remains of the transaction says what the sandbox has removed.
	if (w.forgot || w.journaled) && err == nil && info.Origin == layer.Source {
		return nil
	}
	if same, err := v.isAt(p, info, err); err != nil || same && !v.Keep {
		return nil // the apply continues with it
	}
	return w.PlacedNow(p, v.Made)
}

// PlacedNow returns the source's entry at p, if that is still what an apply made there, else nil.
// It may have another ctime.
func (w *Work) PlacedNow(p vpath.Path, made *layer.Base) (is *layer.Base) {
	err := w.Tree.At(p, func(e Entry) error {
		now, err := e.Stat()
		switch {
		case err != nil || !e.IsPlaced(made, now): // a conflict
		case now == nil:
			is = &layer.Base{Absent: true}
		default:
			is = BaseOf(now)
		}
		return nil
	})
	if made.Absent && IsWayGone(err) {
		is = &layer.Base{Absent: true} // removed with its directory
	}
	return is
}

// HasMerged reports whether a killed apply has placed a merge of the delta's entry at p, and
// both are still the same. What was merged must not be merged again.
func (w *Work) HasMerged(p vpath.Path) (is bool) {
	v, listed := w.placing[p]
	if !listed || !v.Merged {
		return false
	}
	if same, err := v.Holds(w.Stack, p); err != nil || !same {
		return false
	}
	err := w.Tree.At(p, func(e Entry) error {
		now, err := e.Stat()
		is = err == nil && e.IsPlaced(v.Made, now)
		return err
	})
	return is && err == nil
}

// hasRemoved reports whether a killed apply has removed the entry that the delta removes: nothing
// else remembers that, because it is no change any more.
func (w *Work) hasRemoved(p vpath.Path, v Version) bool {
	if !v.Deleted {
		return false
	}
	if same, err := v.Holds(w.Stack, p); err != nil || !same {
		return false
	}
	_, err := w.Stack.SourceInfo(p)
	return errdefs.Is(err, errdefs.NotFound) || errdefs.Is(err, errdefs.Precondition)
}

// rebasePlaced makes the placed entries the bases of the delta's entries, drops those that were
// merged or removed, and records all in the audit log, unless a journal does.
func (w *Work) rebasePlaced() error {
	var versions []Version
	var told []vpath.Path
	for p, v := range w.placing {
		if w.HasMerged(p) || w.hasRemoved(p, v) {
			versions, told = append(versions, v), append(told, p)
		}
		if made := w.placed(p); made != nil {
			// A version that the delta cannot have, so that it drops nothing.
			versions = append(versions, Version{Path: p.String(), Made: made})
			told = append(told, p)
		}
	}
	if len(versions) == 0 {
		return nil
	}
	if _, err := w.Drop(versions); err != nil {
		return err
	}
	if w.journaled {
		return nil // what remains of the transaction has the record
	}
	slices.Sort(told)
	return w.Sandbox.Log(audit.Applied{Mount: w.Sandbox.Mount(), Paths: audit.Texts(told)})
}

// IsPlaced reports whether now, the attributes of the entry, are those of made. It ignores
// the ctime, which a rename or a link changes.
func (e Entry) IsPlaced(made *layer.Base, now *unix.Stat_t) bool {
	switch {
	case made.Absent || now == nil:
		return made.Absent && now == nil
	case record.IsDir(made.Mode):
		return record.IsDir(now.Mode) && now.Mode&record.StickyBits == made.Mode&record.StickyBits
	case made.SHA256 != nil:
		return HasBaseContent(made, e.Dir, e.Name, now)
	case made.Ino == 0: // a FIFO
		return now.Mode == made.Mode && now.Mtim == made.Mtime
	}
	return isBase(made, now)
}

// BaseOf returns the base of a file of the source without its content.
func BaseOf(st *unix.Stat_t) *layer.Base {
	return &layer.Base{Dev: st.Dev, Ino: st.Ino, Size: st.Size, Mode: st.Mode, Nlink: uint32(st.Nlink), Mtime: st.Mtim, Ctime: st.Ctim}
}

// notePlacing reads a line of listPlacing. It ignores a malformed line.
func (w *Work) notePlacing(line string) {
	var v Version
	if json.Unmarshal([]byte(line), &v) != nil || v.Made == nil {
		return
	}
	if p, err := v.At(); err == nil {
		w.placing[p] = v
	}
}

// The line of the list that says whether the delta has begun to drop the placed entries. If
// it has, a missing entry of the delta does not mean that the sandbox removed it.
const (
	forgetting    = "forgetting"
	notForgetting = "          " // the same length
)

// journaled is the line of the list that says that the apply has a journal.
const journaled = `{"journal":true}`
