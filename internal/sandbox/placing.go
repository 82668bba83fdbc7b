package sandbox

import (
	"crypto/sha256"
	"encoding/json"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/audit"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/layer"
	"github.com/agentfense/agentfense/internal/vpath"
)

// An apply that is killed has placed what the delta still calls its own. If the
// sandbox makes something else of it before the next turn, what was recorded of the
// source is neither what the source has nor what the apply made of it, and the
// sandbox would be in conflict with itself. Therefore an apply lists what it is
// about to place, and the next turn takes it for what the sandbox's entry is made of
// (layer.Stack.DropIf), wherever the source still has it.

// forgetting is the list's line behind which the delta forgets what was placed: where
// it has nothing then, the sandbox need not have removed anything.
const (
	forgetting    = "forgetting"
	notForgetting = "          " // as long
)

// placing tells what the step is about to make of the source: the version of the
// delta's entry, and what the source has then. file is what is staged for it, nil if
// nothing is. False if that is not known.
func (a *applier) placing(s *step, file *staged) (v Version, known bool) {
	v = s.version()
	v.Made = &layer.Base{Mode: s.Info.Mode & (typeBits | stickyBits), Mtime: s.Info.Mtime}
	switch {
	case s.status == Deleted:
		v.Made = &layer.Base{Absent: true}
	case isDir(s.Info.Mode):
		v.Made.Mtime = unix.Timespec{}
	case s.Info.Mode&typeBits == unix.S_IFLNK:
		target, err := a.target(s)
		if err != nil {
			return v, false
		}
		sum := sha256.Sum256([]byte(target))
		v.Made.SHA256, v.Made.Mode = sum[:], s.Info.Mode
	case s.Info.Mode&typeBits == unix.S_IFREG:
		st, err := a.statStaged(s, file)
		if err != nil || st == nil {
			return v, false
		}
		v.Made = baseOf(st)
		v.Made.Mode = unix.S_IFREG | s.Info.Mode&permBits
	}
	return v, true
}

// statStaged describes the file that is staged for s, or the one that only gets
// another mode.
func (a *applier) statStaged(s *step, file *staged) (st *unix.Stat_t, err error) {
	if file != nil {
		st = &unix.Stat_t{}
		return st, unix.Fstat(int(file.file.Fd()), st)
	}
	err = a.work.tree.at(s.Path, func(e entry) (err error) {
		st, err = e.stat()
		return err
	})
	return st, err
}

// isPlaced reports whether now, the entry's status, is what was about to be placed:
// but for the ctime, which a rename or a link moves.
func (e entry) isPlaced(made *layer.Base, now *unix.Stat_t) bool {
	switch {
	case made.Absent || now == nil:
		return made.Absent && now == nil
	case isDir(made.Mode):
		return isDir(now.Mode) && now.Mode&stickyBits == made.Mode&stickyBits
	case made.SHA256 != nil:
		return hasBaseContent(made, e.dir, e.name, now)
	case made.Ino == 0: // a FIFO
		return now.Mode == made.Mode && now.Mtim == made.Mtime
	}
	return isBase(made, now)
}

// listPlacing lists, durably, what the steps are about to place. staged gives the
// file that is staged for one, nil for none. Where the disk has no room for that, the
// next turn finds a conflict at most.
func (a *applier) listPlacing(steps []*step, staged func(*step) *staged) error {
	if a.work.elsewhere {
		return nil // the delta stays as it is
	}
	var lines []string
	for _, s := range steps {
		v, known := a.placing(s, staged(s))
		if !known {
			continue
		}
		s.places = v.Made
		line, err := json.Marshal(v)
		if err != nil {
			return err
		}
		lines = append(lines, string(line))
	}
	if err := a.work.turn.append(lines); !fault.Is(err, fault.Exhausted) {
		return err
	}
	return nil
}

// notePlacing reads a line of listPlacing. One that cannot be read tells nothing.
func (w *work) notePlacing(line string) {
	var v Version
	if json.Unmarshal([]byte(line), &v) != nil || v.Made == nil {
		return
	}
	if p, err := v.At(); err == nil {
		w.placing[p] = v
	}
}

// placed is what the source has at p, if a killed apply has placed it and the
// sandbox has made something else of its entry since, else nil.
func (w *work) placed(p vpath.Path) *layer.Base {
	v, listed := w.placing[p]
	if !listed {
		return nil
	}
	info, err := w.stack.Lookup(p)
	if w.forgot && err == nil && info.Origin == layer.Source {
		return nil
	}
	if same, err := v.isAt(p, info, err); err != nil || same {
		return nil // it is gone on with
	}
	var made *layer.Base
	err = w.tree.at(p, func(e entry) error {
		now, err := e.stat()
		switch {
		case err != nil || !e.isPlaced(v.Made, now): // a conflict
		case now == nil:
			made = &layer.Base{Absent: true}
		default:
			made = baseOf(now)
		}
		return nil
	})
	if v.Made.Absent && isWayGone(err) {
		made = &layer.Base{Absent: true} // removed with its directory
	}
	return made
}

// adoptPlaced has the delta take what was placed for what its entries are made of,
// and tells of it in the audit log.
func (w *work) adoptPlaced() error {
	var versions []Version
	var told []vpath.Path
	for p := range w.placing {
		if made := w.placed(p); made != nil {
			// No version that the delta could have: it is to forget nothing.
			versions = append(versions, Version{Path: p.String(), Made: made})
			told = append(told, p)
		}
	}
	if len(versions) == 0 {
		return nil
	}
	if _, err := w.drop(versions); err != nil {
		return err
	}
	slices.Sort(told)
	return w.sandbox.log(audit.Applied{Paths: audit.Texts(told)})
}

// baseOf is what a delta records of a file of the source, but for its content.
func baseOf(st *unix.Stat_t) *layer.Base {
	return &layer.Base{Dev: st.Dev, Ino: st.Ino, Size: st.Size, Mode: st.Mode, Nlink: uint32(st.Nlink), Mtime: st.Mtim, Ctime: st.Ctim}
}

// target reads what the link in the delta points to.
func (a *applier) target(s *step) (target string, err error) {
	err = asOwner(func() (err error) {
		target, err = a.work.stack.Readlink(s.Path)
		return err
	})
	return target, err
}

// unstaged are the steps of which nothing has to be staged to know what they place.
func (p *plan) unstaged() []*step {
	var steps []*step
	for _, s := range p.steps {
		if !s.done && s.outcome == Applied && (s.status == Deleted || s.Info.Mode&typeBits != unix.S_IFREG) {
			steps = append(steps, s)
		}
	}
	return steps
}
