package sandbox

import (
	"errors"

	"github.com/agentfense/agentfense/internal/audit"
	"github.com/agentfense/agentfense/internal/vpath"
)

// DiscardOptions say what to throw away.
type DiscardOptions struct {
	// Paths select what lies at and below them; none: everything.
	Paths  []vpath.Path
	DryRun bool
	// Drop is as in ApplyOptions.
	Drop func([]Version) (stale []vpath.Path, err error)
}

// DiscardResult tells what was thrown away.
type DiscardResult struct {
	// Paths are the changes as a review lists them: there the view shows the source
	// again.
	Paths []vpath.Path
	// Changed are paths that the sandbox wrote to meanwhile; they are still in
	// the delta.
	Changed []vpath.Path
}

// Discard lets the sandbox's view show the source again. A rename is a
// deletion and an addition, and each can be discarded without the other: the
// view then shows the file twice, or not at all.
//
// Errors: Precondition if the sandbox is locked; NotFound for a path at which
// nothing changed.
func (s *Sandbox) Discard(o DiscardOptions) (result DiscardResult, err error) {
	w, err := s.openToDiscard(o)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	changes, err := w.changes(o.Paths, false)
	if err != nil {
		return result, err
	}
	versions := make([]Version, len(changes))
	silent := implied(changes)
	for i, c := range changes {
		versions[i] = c.version()
		if c.status != 0 && c.kept == "" && !silent[c.Path] {
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
	if err := w.finishDirs(changes); err != nil {
		return result, err
	}
	if o.Drop == nil && len(o.Paths) == 0 {
		err = w.stack.DropAll()
	} else {
		result.Changed, err = w.drop(versions)
	}
	if err != nil {
		return result, err
	}
	// Also what was shown there and is no change at this moment.
	err = s.settle(selection(o.Paths))
	if len(result.Paths) == 0 {
		return result, err
	}
	return result, errors.Join(log.Append(audit.Discarded{Paths: audit.Texts(result.Paths)}), err)
}
