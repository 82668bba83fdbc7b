package review

import (
	"errors"
	"slices"

	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/cleangit"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// HasChanges reports whether the sandbox's delta holds anything, or that of a mount.
func HasChanges(s *record.Sandbox) (bool, error) {
	for _, part := range s.Parts() {
		if changed, err := hasChangesBut(part, false); changed || err != nil {
			return changed, err
		}
	}
	return false, nil
}

// HasChangesToKeep is HasChanges with the commits of a clean repository, and without what agents
// leave in the home directory each time: own entries, and new directories without files.
func HasChangesToKeep(s *record.Sandbox) (bool, error) {
	for _, part := range s.Parts() {
		if changed, err := hasChangesBut(part, isAgentHome(s, part)); changed || err != nil {
			return changed, err
		}
	}
	return UnsavedBranches(s) > 0, nil
}

// UnsavedBranches counts the refs of the sandbox's clean repository with commits that are nowhere
// else. A repository that cannot be read counts as one: nobody can tell.
func UnsavedBranches(s *record.Sandbox) int {
	if !s.Stored.Git.IsClean() {
		return 0
	}
	refs, err := cleangit.StoreIn(s.Dir()).Unsaved()
	if err != nil {
		return 1
	}
	return len(refs)
}

// isAgentHome reports whether a part of a sandbox is the home directory of an agent.
func isAgentHome(s, part *record.Sandbox) bool {
	return slices.ContainsFunc(s.Stored.Mounts, func(m record.Mount) bool { return m.Name == part.Mount() && m.IsAgentHome() })
}

// hasChangesBut reports whether there are changes, of an agent's home directory those that count.
func hasChangesBut(s *record.Sandbox, isHome bool) (bool, error) {
	w, err := changes.OpenToRead(s)
	if err != nil {
		return false, err
	}
	changed, err := w.Stack.HasChanges()
	if err == nil && changed && isHome {
		var list []changes.Change
		list, err = w.Changes(nil, false)
		changed = slices.ContainsFunc(list, func(c changes.Change) bool {
			return c.IsListed() && !isOfAgent(c.IsOwn(), &c)
		})
	}
	return changed, errors.Join(err, w.Close())
}

// IsOfAgent reports whether an agent leaves such a change in its home directory each time: an own
// entry, or a new directory without files.
func (f *FileDiff) IsOfAgent() bool {
	return isOfAgent(f.Own, &f.Change)
}

func isOfAgent(own bool, c *changes.Change) bool {
	return own || c.Status == changes.Added && c.Info.IsDir()
}

// Pending is what a sandbox holds.
type Pending struct {
	Changes  int // that a diff lists
	LeftOut  int // of these, that no apply takes
	InMounts int // of these, that are not in the workspace
	// Branches are the refs of the clean repository with commits that are nowhere else.
	Branches int
}

// PendingOf counts what a diff lists.
func PendingOf(files []FileDiff) Pending {
	p := Pending{Changes: len(files)}
	for i := range files {
		if files[i].LeftOut != "" {
			p.LeftOut++
		}
	}
	return p
}

// CountPending returns what is lost with the sandbox, also of its mounts: what a diff lists,
// without what the source has already and what agents leave in the home directory each time.
func CountPending(s *record.Sandbox) (Pending, error) {
	var all Pending
	for _, part := range s.Parts() {
		p, err := countPending(part, isAgentHome(s, part))
		if err != nil {
			return all, err
		}
		all.Changes += p.Changes
		all.LeftOut += p.LeftOut
		if part.Mount() != "" {
			all.InMounts += p.Changes
		}
	}
	all.Branches = UnsavedBranches(s)
	return all, nil
}

func countPending(s *record.Sandbox, isHome bool) (Pending, error) {
	if changed, err := hasChangesBut(s, isHome); err != nil || !changed {
		return Pending{}, err
	}
	r, err := Open(s)
	if err != nil {
		return Pending{}, err
	}
	_, lost := s.SourceLost()
	// A person may not have what an uploaded copy has.
	hasSource := lost == nil && (s.Mount() != "" || !s.Stored.IsUploaded())
	files := slices.DeleteFunc(slices.Clone(r.Files()), func(f FileDiff) bool {
		return isHome && f.IsOfAgent() || hasSource && r.isInSource(&f)
	})
	return PendingOf(files), r.Close()
}

// isInSource reports whether the source has the result of a change already, as after an apply of
// commits. What cannot be read it may lack.
func (r *Review) isInSource(f *FileDiff) bool {
	if f.Change.Fresh {
		return false
	}
	present, err := r.work.IsPresent(&f.Change)
	return present && err == nil
}
