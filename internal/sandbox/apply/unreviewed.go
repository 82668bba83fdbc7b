package apply

import (
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/risk"
)

// holdRisks leaves out the steps that could act on the host although nobody starts anything by its
// name, with what cannot be applied without them. It looks at the changes as they are now, under
// the apply lock.
func (p *plan) holdRisks() error {
	table, err := risk.New(p.work.Sandbox.Stored.Marks)
	if err != nil {
		return err
	}
	for _, s := range p.steps {
		if s.Status == 0 || s.done || s.implied || s.outcome != Applied && s.outcome != Conflict {
			continue
		}
		if why := review.ActsByItself(table, &s.shown); why != "" {
			s.stop(Skipped, "waits for a review: %s", why)
		}
	}
	p.keepWhole()
	for _, s := range p.steps {
		if above := p.at[s.Path.Dir()]; s.isPlanned() && above != nil && above != s && above.outcome == Skipped {
			s.stop(Skipped, "its directory %s", above.reason)
		}
	}
	for _, s := range p.steps {
		for dir := range s.Path.Ancestors() {
			above := p.at[dir]
			if s.outcome == Skipped && s.Status == changes.Deleted && above != nil && above.isPlanned() && above.Status == changes.Deleted {
				above.stop(Skipped, "it contains %s, which waits for a review", changes.Quote(s.Path))
			}
		}
	}
	return nil
}
