package apply

import (
	"errors"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// DiscardOptions say what to discard.
type DiscardOptions struct {
	// Paths select the changes at and below them; empty selects all.
	Paths  []vpath.Path
	DryRun bool
	// Drop is as in Options.
	Drop func([]changes.Version) (stale []vpath.Path, err error)
	// Recovered is as in Options.
	Recovered func(history.Recovered)
}

// DiscardResult says what was discarded.
type DiscardResult struct {
	// Paths are the discarded changes as a review lists them.
	Paths []vpath.Path
	// Changed are paths to which the sandbox wrote meanwhile. They are still in the delta.
	Changed []vpath.Path
}

// Discard drops changes, so that the sandbox's view shows the source again. A rename is a
// deletion and an addition, and each can be discarded separately: the view then shows the
// file twice, or not at all.
//
// Errors: Precondition if the sandbox is locked; NotFound for a path without changes.
func Discard(s *record.Sandbox, o DiscardOptions) (result DiscardResult, err error) {
	w, err := openToDiscard(s, o)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	list, err := w.Changes(o.Paths, false)
	if err != nil {
		return result, err
	}
	versions := make([]changes.Version, len(list))
	silent := review.Implied(list)
	for i, c := range list {
		versions[i] = c.Version()
		if c.IsListed() && !silent[c.Path] {
			result.Paths = append(result.Paths, c.Path.Plain())
		}
	}
	if o.DryRun {
		return result, nil
	}
	log, err := s.OpenLog()
	if err != nil {
		return DiscardResult{}, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if err := w.FinishDirs(list); err != nil {
		return result, err
	}
	if o.Drop == nil && len(o.Paths) == 0 {
		err = w.Stack.Reset()
	} else {
		result.Changed, err = w.Drop(versions)
	}
	if err != nil {
		return result, err
	}
	// Also paths that were shown and are not changes now.
	err = manifest.Settle(s, changes.Selection(o.Paths))
	if len(result.Paths) == 0 {
		return result, err
	}
	return result, errors.Join(log.Append(audit.Discarded{Mount: s.Mount(), Paths: audit.Texts(result.Paths)}), err)
}

// openToDiscard opens the sandbox to discard changes. If its source is lost, it can only
// discard all of them, because the source's entry below a single change is unknown.
func openToDiscard(s *record.Sandbox, o DiscardOptions) (*changes.Work, error) {
	_, why := s.SourceLost()
	if why == nil && !o.DryRun {
		// The delta may have the only copy of what a killed apply has half applied.
		if err := RecoverSource(s, o.Drop, o.Recovered); err != nil {
			return nil, err
		}
	}
	switch {
	case why == nil:
		return changes.OpenTo(s, record.PurposeDiscard, o.Drop, o.DryRun)
	case o.Drop != nil:
		return nil, errdefs.New(errdefs.Precondition, "discard %s: %w: stop the sandbox first", s.Ref(), why)
	case len(o.Paths) > 0:
		return nil, errdefs.New(errdefs.Precondition, "discard %s: %w: without its source only everything can be discarded, not a path", s.Ref(), why)
	}
	return changes.OpenBy(s, record.PurposeDiscard, nil, o.DryRun, func(readOnly bool) (*changes.Work, error) {
		source, err := s.Home.EmptyDir()
		if err != nil {
			return nil, err
		}
		return changes.OpenOver(s, source, s.Stored.Source, layer.Options{ReadOnly: readOnly, Elsewhere: true})
	})
}
