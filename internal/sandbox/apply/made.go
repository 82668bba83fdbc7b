package apply

import (
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// act executes a step, and records the resulting entry of the source in step.made. If the
// running sandbox changes the delta's entry before the delta drops it, step.made becomes
// the base of that entry. act never records an entry that another process made in the
// source.
func (a *applier) act(s *step, do func(*step, changes.Entry) error) error {
	image, err := a.plan.image(s)
	if err != nil {
		return err
	}
	return a.work.Tree.At(s.Path, func(e changes.Entry) error {
		if err := do(s, e.To(image)); err != nil || a.work.Lock != nil && !a.work.NoteMade {
			return err
		}
		s.made = nil
		now, err := e.Stat()
		switch {
		case err != nil || s.places == nil || !e.IsPlaced(s.places, now): // unknown, so a later apply finds a conflict
		case now == nil:
			s.made = &layer.Base{Absent: true}
		default:
			s.made = changes.BaseOf(now)
		}
		return nil
	})
}
