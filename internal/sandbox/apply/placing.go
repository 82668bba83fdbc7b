package apply

import (
	"crypto/sha256"
	"encoding/json"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// An apply that is killed has placed what the delta still calls its own. If the
// sandbox makes something else of it before the next apply or discard, what was recorded of the
// source is neither what the source has nor what the apply made of it, and the
// sandbox would be in conflict with itself. Therefore an apply lists what it is
// about to place, and the next apply or discard takes it for what the sandbox's entry is made of
// (layer.Stack.DropMatching), wherever the source still has it.

// placing tells what the step is about to make of the source: the version of the
// delta's entry, and what the source has then. file is what is staged for it, nil if
// nothing is. False if that is not known.
func (a *applier) placing(s *step, file *changes.Staged) (v changes.Version, known bool) {
	v = s.Version()
	v.Made = &layer.Base{Mode: s.Info.Mode & (record.TypeBits | record.StickyBits), Mtime: s.Info.Mtime}
	switch {
	case s.Status == changes.Deleted:
		v.Made = &layer.Base{Absent: true}
	case record.IsDir(s.Info.Mode):
		v.Made.Mtime = unix.Timespec{}
	case s.Info.Mode&record.TypeBits == unix.S_IFLNK:
		target, err := a.target(s)
		if err != nil {
			return v, false
		}
		sum := sha256.Sum256([]byte(target))
		v.Made.SHA256, v.Made.Mode = sum[:], s.Info.Mode
	case s.Info.Mode&record.TypeBits == unix.S_IFREG:
		st, err := a.statStaged(s, file)
		if err != nil || st == nil {
			return v, false
		}
		v.Made = changes.BaseOf(st)
		v.Made.Mode = unix.S_IFREG | s.Info.Mode&record.PermBits
	}
	return v, true
}

// statStaged describes the file that is staged for s, or the one that only gets
// another mode.
func (a *applier) statStaged(s *step, file *changes.Staged) (st *unix.Stat_t, err error) {
	if file != nil {
		st = &unix.Stat_t{}
		return st, unix.Fstat(int(file.File.Fd()), st)
	}
	err = a.work.Tree.At(s.Path, func(e changes.Entry) (err error) {
		st, err = e.Stat()
		return err
	})
	return st, err
}

// listPlacing lists, durably, what the steps are about to place. staged gives the
// file that is staged for one, nil for none. Where the disk has no room for that, the
// next turn finds a conflict at most.
func (a *applier) listPlacing(steps []*step, staged func(*step) *changes.Staged) error {
	if a.work.Elsewhere {
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
	if err := a.work.ApplyLock.Append(lines); !errdefs.Is(err, errdefs.Exhausted) {
		return err
	}
	return nil
}

// target reads what the link in the delta points to.
func (a *applier) target(s *step) (target string, err error) {
	err = record.AsOwner(func() (err error) {
		target, err = a.work.Stack.Readlink(s.Path)
		return err
	})
	return target, err
}

// unstaged are the steps of which nothing has to be staged to know what they place.
func (p *plan) unstaged() []*step {
	var steps []*step
	for _, s := range p.steps {
		if !s.done && s.outcome == Applied && (s.Status == changes.Deleted || s.Info.Mode&record.TypeBits != unix.S_IFREG) {
			steps = append(steps, s)
		}
	}
	return steps
}
