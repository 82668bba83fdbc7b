package sandbox

import (
	"slices"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/ignore"
	"github.com/agentfense/agentfense/internal/vpath"
)

// Absent returns what of the source is not there for the sandbox, as
// layer.Options.Absent takes it. Errors: Precondition for patterns that are none.
func (r *Record) Absent() (func(p vpath.Path, isDir bool) bool, error) {
	m, err := r.ignored()
	if m == nil {
		return nil, err
	}
	// Not Excludes, which asks for all directories above: each step of a look-up
	// comes here, and paths and patterns are somebody else's.
	return m.ExcludesEntry, nil
}

// ignored returns the patterns of what is not there, nil for none.
func (r *Record) ignored() (*ignore.Matcher, error) {
	if len(r.Ignore) == 0 {
		return nil, nil
	}
	m, err := ignore.New(string(r.Ignore))
	if err != nil {
		return nil, fault.New(fault.Precondition, "sandbox %s: %w", r.Name, err)
	}
	return m, nil
}

// markKept marks the versions whose entries the view would not show any more if
// the delta forgot them, because they are ignored in the source.
func (w *work) markKept(versions []Version) (marked []Version, all bool, err error) {
	ignored, err := w.sandbox.record.ignored()
	if err != nil || ignored == nil {
		return versions, true, err
	}
	marked, all = slices.Clone(versions), true
	for i, v := range marked {
		p, err := v.At()
		if err != nil {
			return nil, false, err
		}
		if !v.Deleted && ignored.Excludes(p, isDir(v.Mode)) {
			marked[i].Keep, all = true, false
		}
	}
	return marked, all, nil
}
