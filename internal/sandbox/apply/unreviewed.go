package apply

import (
	"slices"

	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/acting"
)

// holdRisks leaves out the steps that could act on the host by themselves, with what cannot be
// applied without them. It looks at the changes as they are now, under the apply lock.
func (p *plan) holdRisks() error {
	by, err := acting.By(p.work.Sandbox.Stored.Marks)
	if err != nil {
		return err
	}
	for _, s := range p.steps {
		shown := review.FileDiff{Path: s.Path.Plain(), Mark: s.shown.mark, Change: s.Change}
		if why := by(&shown); why != "" && (s.isPlanned() || s.outcome == Conflict) {
			s.stop(Skipped, "waits for a review: %s", why)
		}
	}
	p.keepWhole()
	for _, s := range p.steps {
		if above := p.at[s.Path.Dir()]; s.isPlanned() && above != nil && above.outcome == Skipped {
			s.stop(Skipped, "its directory %s", above.reason)
		}
	}
	for _, s := range slices.Backward(p.steps) { // what is in a directory before it
		if above := p.at[s.Path.Dir()]; s.outcome == Skipped && above != nil && above.isPlanned() && above.Status == changes.Deleted {
			above.stop(Skipped, "it contains %s, which is not deleted", changes.Quote(s.Path))
		}
	}
	return nil
}
