package apply

import (
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/parallel"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
)

// placeAll places the steps of a batch, those that do not depend on each other concurrently. With
// an error of the batch it places none, and removes the staged files.
func (a *applier) placeAll(b *batch, err error) {
	for steps := b.steps; len(steps) > 0; {
		n := a.independent(steps)
		placed := a.placeTogether(b, steps[:n], err)
		for i, s := range steps[:n] {
			if s.outcome != Applied {
				continue // it was skipped
			}
			a.finish(s, placed[i])
			if a.plan.whole && placed[i] != nil {
				err = placed[i]
			}
		}
		steps = steps[n:]
	}
}

// independent returns how many steps, from the first on, are placed concurrently: many, or one. The
// files of a git directory and of a database have an order, and the names of one file are made one
// after the other.
func (a *applier) independent(steps []*step) int {
	n := 0
	for n < len(steps) && !a.plan.whole && steps[n].Info.Nlink <= 1 && gitRank(steps[n].Path) == rankOther {
		n++
	}
	if n < manyFiles {
		return 1
	}
	return n
}

// placeTogether places the steps, and returns the error of each.
func (a *applier) placeTogether(b *batch, steps []*step, err error) []error {
	placed := make([]error, len(steps))
	_ = parallel.Each(len(steps), func(i int) error {
		placed[i] = a.placeOne(b, steps[i], err)
		return nil
	})
	return placed
}

// placeOne places a step, unless the batch has an error, or the step belongs to a git directory
// with a failed change.
func (a *applier) placeOne(b *batch, s *step, err error) error {
	switch {
	case err == nil && a.isBroken(s):
		s.stop(Skipped, PartOfRepository)
		b.unstage(a, s)
		return nil
	case err == nil:
		err = a.act(s, func(s *step, e changes.Entry) error { return a.place(b, s, e) })
	default:
		b.unstage(a, s)
	}
	failpoint.At("sync: one placed")
	return err
}
