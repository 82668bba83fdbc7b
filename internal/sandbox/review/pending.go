package review

import (
	"errors"

	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// HasChanges reports whether the sandbox's delta holds anything, or that of a mount.
func HasChanges(s *record.Sandbox) (bool, error) {
	for _, part := range s.Parts() {
		if changed, err := hasChanges(part); changed || err != nil {
			return changed, err
		}
	}
	return false, nil
}

func hasChanges(s *record.Sandbox) (bool, error) {
	w, err := changes.OpenToRead(s)
	if err != nil {
		return false, err
	}
	changed, err := w.Stack.HasChanges()
	return changed, errors.Join(err, w.Close())
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
	if changed, err := hasChanges(s); err != nil || !changed {
		return Pending{}, err
	}
	r, err := Open(s)
	if err != nil {
		return Pending{}, err
	}
	return PendingOf(r.Files()), r.Close()
}
