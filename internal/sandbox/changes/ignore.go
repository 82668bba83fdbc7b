package changes

import (
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/transfer/ignore"
)

// Absent returns the filter of ignored entries of the source, for layer.Options.Absent.
// Errors: Precondition for malformed patterns.
//
// A sandbox on a linked directory does not see entries that an upload would omit, and may
// create them. A policy cannot express that, so the layer applies this filter to look-ups
// and listings of the source. An entry that the sandbox creates at such a path has an
// absent base, so that apply finds a conflict with the host's file. An apply keeps a
// deleted directory that still contains such a file. The record stores the patterns. If
// they were read again, an edit of .gitignore would make files appear and disappear during
// a command.
func Absent(r *record.Record) (func(p vpath.Path, isDir bool) bool, error) {
	m, err := ignored(r)
	if m == nil {
		return r.Git.Hides(nil), err
	}
	// Not Excludes, which also checks all parent directories: each step of a look-up calls
	// this function, and others control the paths and patterns.
	return r.Git.Hides(m.ExcludesEntry), nil
}

// ignored returns the patterns of the ignored entries, or nil.
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

// MarkKept marks the versions of entries that the view would no longer show if the delta
// dropped them, because they are ignored in the source.
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
