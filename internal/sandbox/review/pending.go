package review

import (
	"errors"
	"slices"

	"github.com/agentfense/agentfense/internal/sandbox/changes"
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

// HasChangesToKeep is HasChanges without what agents leave in the home directory each time: own
// entries, and new directories without files.
func HasChangesToKeep(s *record.Sandbox) (bool, error) {
	for _, part := range s.Parts() {
		isHome := slices.ContainsFunc(s.Stored.Mounts, func(m record.Mount) bool { return m.Name == part.Mount() && m.IsAgentHome() })
		if changed, err := hasChangesBut(part, isHome); changed || err != nil {
			return changed, err
		}
	}
	return false, nil
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

// CountChanges returns how many changes a diff would list: what is lost with the
// sandbox.
func CountChanges(s *record.Sandbox) (int, error) {
	p, err := CountPending(s)
	return p.Changes, err
}

// Pending is what a sandbox holds.
type Pending struct {
	Changes  int // that a diff would list
	LeftOut  int // of these, that no apply takes
	InMounts int // of these, that are not in the workspace
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

// CountPending returns what is lost with the sandbox, also of its mounts.
func CountPending(s *record.Sandbox) (Pending, error) {
	var all Pending
	for _, part := range s.Parts() {
		p, err := countPending(part)
		if err != nil {
			return all, err
		}
		all.Changes += p.Changes
		all.LeftOut += p.LeftOut
		if part.Mount() != "" {
			all.InMounts += p.Changes
		}
	}
	return all, nil
}

func countPending(s *record.Sandbox) (Pending, error) {
	if changed, err := hasChangesBut(s, false); err != nil || !changed {
		return Pending{}, err
	}
	r, err := Open(s)
	if err != nil {
		return Pending{}, err
	}
	return PendingOf(r.Files()), r.Close()
}
