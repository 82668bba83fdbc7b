package changes

import (
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/transfer/ignore"
)

// Absent returns what of the source is not there for the sandbox, as
// layer.Options.Absent takes it. Errors: Precondition for patterns that are none.
//
// A sandbox on a linked directory does not see what an upload would leave out, and may create it. A
// policy cannot say that, so the layer is given this filter on the source alone, for look-up and
// listing. What the sandbox creates in place of such an entry is recorded as made where nothing
// was, and apply then finds the host's own file there: a conflict. A directory that still holds
// such a file survives its deletion at apply. The record keeps the patterns: if they were read
// anew, an edit of .gitignore would make files appear and vanish under a running command.
func Absent(r *record.Record) (func(p vpath.Path, isDir bool) bool, error) {
	m, err := ignored(r)
	if m == nil {
		return nil, err
	}
	// Not Excludes, which asks for all directories above: each step of a look-up
	// comes here, and paths and patterns are somebody else's.
	return m.ExcludesEntry, nil
}

// ignored returns the patterns of what is not there, nil for none.
func ignored(r *record.Record) (*ignore.Matcher, error) {
	if len(r.Ignore) == 0 {
		return nil, nil
	}
	m, err := ignore.New(string(r.Ignore))
	if err != nil {
		return nil, errdefs.New(errdefs.Precondition, "sandbox %s: %w", r.Name, err)
	}
	return m, nil
}

// MarkKept marks the versions whose entries the view would not show any more if
// the delta forgot them, because they are ignored in the source.
func (w *Work) MarkKept(versions []Version) (marked []Version, all bool, err error) {
	ignored, err := ignored(&w.Sandbox.Stored)
	if err != nil || ignored == nil {
		return versions, true, err
	}
	marked, all = slices.Clone(versions), true
	for i, v := range marked {
		p, err := v.At()
		if err != nil {
			return nil, false, err
		}
		if !v.Deleted && ignored.Excludes(p, record.IsDir(v.Mode)) {
			marked[i].Keep, all = true, false
		}
	}
	return marked, all, nil
}
