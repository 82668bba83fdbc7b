package apply

import (
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// act does a step at its entry, and remembers what it has made of the source: if
// the sandbox, which runs, has made something else of the delta's entry by the time
// the delta is to forget it, that is what the entry is made of. What somebody else
// has made of the source is never taken for it.
func (a *applier) act(s *step, do func(*step, changes.Entry) error) error {
	return a.work.Tree.At(s.Path, func(e changes.Entry) error {
		if err := do(s, e); err != nil || a.work.Lock != nil && !a.work.NoteMade {
			return err
		}
		s.made = nil
		now, err := e.Stat()
		switch {
		case err != nil || s.places == nil || !e.IsPlaced(s.places, now): // it is not known, and a conflict later
		case now == nil:
			s.made = &layer.Base{Absent: true}
		default:
			s.made = changes.BaseOf(now)
		}
		return nil
	})
}
