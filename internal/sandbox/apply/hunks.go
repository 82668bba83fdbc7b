package apply

import (
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/hunk"
)

// planSelected plans the changes that o selects, by path or by hunk.
func planSelected(w *changes.Work, o Options) (*plan, error) {
	if len(o.Hunks) > 0 && len(o.Paths) > 0 {
		return nil, errdefs.New(errdefs.Invalid, "apply %s: paths and hunks exclude each other", w.Sandbox.Ref())
	}
	list, err := w.Changes(o.Paths, true)
	if err != nil {
		return nil, err
	}
	if len(o.Hunks) > 0 {
		picked, err := hunk.Pick(w, list, o.Hunks, w.Sandbox.Ref())
		if err != nil {
			return nil, err
		}
		return planReviewed(w, picked.Changes, picked, o)
	}
	if err := review.CheckWhole(w, list, o.Paths, w.Sandbox.Ref()); err != nil {
		return nil, err
	}
	return planReviewed(w, list, nil, o)
}

// takePicked plans what hunks choose: a change that differs from the one that was chosen is left
// out, and of another one only the chosen part is applied. Without picked, it only finds the
// reviewed changes at and below paths that are gone.
func (p *plan) takePicked(picked *hunk.Picked, paths []vpath.Path) error {
	if picked == nil {
		p.findGone(changes.Selection(paths))
		return nil
	}
	p.findGone(picked.Names)
	if err := picked.CheckMet(p.gone, p.work.Sandbox.Ref()); err != nil {
		return err
	}
	for _, s := range p.steps {
		why, part := picked.Stale[s.Path], picked.Parts[s.Path]
		s.partly = s.outcome == Conflict && (why != "" || part != nil)
		if s.outcome != Applied || s.done {
			continue
		}
		if why != "" {
			s.stop(ChangedSinceReview, "%s", why)
		}
		if part != nil {
			s.part, s.merging = part, &part.Merged
		}
	}
	return nil
}

// placedSize is the size of the entry that the step places.
func (s *step) placedSize() int64 {
	if s.merging != nil {
		return int64(len(s.merging.Text))
	}
	return s.Info.Size
}
