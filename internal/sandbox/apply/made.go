package sandbox

import "github.com/agentfense/agentfense/internal/layer"

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
		case err != nil || s.places == nil || !e.isPlaced(s.places, now): // it is not known, and a conflict later
		case now == nil:
			s.made = &layer.Base{Absent: true}
		default:
			s.made = baseOf(now)
		}
		return nil
	})
}
