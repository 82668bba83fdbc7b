package sandbox

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/layer"
)

// act does a step at its entry, and remembers what it has made of the source: if
// the sandbox, which runs, has made something else of the delta's entry by the time
// the delta is to forget it, that is what the entry is made of. What somebody else
// has made of the source is never taken for it.
func (a *applier) act(s *step, do func(*step, entry) error) error {
	return a.work.tree.at(s.Path, func(e entry) error {
		if err := do(s, e); err != nil || a.work.lock != nil && !a.work.noteMade {
			return err
		}
		s.made = nil
		now, err := e.stat()
		switch {
		case err != nil: // it is not known, and a conflict later
		case s.status == Deleted:
			s.made = &layer.Base{Absent: true}
		case now != nil && a.hasMade(s, now):
			s.made = baseOf(now)
		}
		return nil
	})
}

// hasMade reports whether now looks as the step makes it.
func (a *applier) hasMade(s *step, now *unix.Stat_t) bool {
	switch now.Mode & typeBits {
	case unix.S_IFDIR:
		return isDir(s.Info.Mode) && now.Mode&stickyBits == s.Info.Mode&stickyBits
	case unix.S_IFREG:
		return now.Mode == s.becomes.Mode && now.Size == s.becomes.Size && now.Mtim == s.becomes.Mtim
	case unix.S_IFLNK:
		target, err := a.work.stack.SourceReadlink(s.Path)
		return err == nil && s.target != "" && target == s.target
	}
	return false
}
