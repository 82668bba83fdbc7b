package apply

import (
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/risk"
)

// holdRisks leaves out the steps that could act on the host although nobody starts anything by its
// name, and those that a git repository cannot be applied without. It looks at the changes as they
// are now, under the apply lock.
func (p *plan) holdRisks() error {
	table, err := risk.New(p.work.Sandbox.Stored.Marks)
	if err != nil {
		return err
	}
	repositories := map[vpath.Path]bool{}
	for _, s := range p.steps {
		if s.Status == 0 || s.done || s.implied || s.outcome != Applied && s.outcome != Conflict {
			continue
		}
		why := actsByItself(table, s)
		if why == "" {
			continue
		}
		s.stop(Skipped, "waits for a review: %s", why)
		if dir, _, inGit := review.GitDirOf(s.Path); inGit {
			repositories[dir] = true
		}
	}
	p.holdWith(repositories)
	return nil
}

// actsByItself says how the change of a step could act on the host by itself, "" if it cannot.
func actsByItself(table *risk.Table, s *step) string {
	mark := s.shown.Mark
	if mark == nil {
		return ""
	}
	kind := s.Info.Mode & record.TypeBits
	e, found := table.At(s.Path, record.IsDir(s.Info.Mode) || kind == 0 && record.IsDir(s.BaseMode()))
	isOther := mark.Reason != review.Executable && (!found || mark.Reason != e.Reason) // not by its name
	switch _, _, inGit := review.GitDirOf(s.Path); {
	case found && e.Runs:
		return e.Reason
	case isOther && mark.Risk == review.RunsOnHost:
		return mark.Reason
	case inGit: // git's own state, such as its index
		return ""
	case found && !e.ByName:
		return e.Reason
	case isOther:
		return mark.Reason
	}
	return ""
}

// holdWith leaves out the rest of the repositories, what is in a directory that is left out, and
// the removal of a directory that has something that is left out.
func (p *plan) holdWith(repositories map[vpath.Path]bool) {
	for _, s := range p.steps {
		if !s.isPlanned() {
			continue
		}
		above := p.at[s.Path.Dir()]
		if dir, _, inGit := review.GitDirOf(s.Path); inGit && repositories[dir] {
			s.stop(Skipped, PartOfRepository)
		} else if above != nil && above != s && above.outcome == Skipped {
			s.stop(Skipped, "its directory %s", above.reason)
		}
	}
	for _, s := range p.steps {
		if s.outcome != Skipped || s.Status != changes.Deleted {
			continue
		}
		for dir := range s.Path.Ancestors() {
			if above := p.at[dir]; above != nil && above != s && above.isPlanned() && above.Status != changes.Added {
				above.stop(Skipped, "it contains %s, which waits for a review", changes.Quote(s.Path))
			}
		}
	}
}
