package apply

import (
	"fmt"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// ResolveTarget returns the identity of the directory at path, for
// Options.To. Errors: as record.Home.ResolveSource; Invalid for the sandbox's source and
// for the root of the host.
func ResolveTarget(s *record.Sandbox, path string) (*record.Source, error) {
	to, err := s.Home.ResolveSource(path)
	switch own := s.Stored.Source; {
	case err != nil:
		return nil, err
	case to.Path == "/":
		return nil, errdefs.New(errdefs.Invalid, "apply to /: the whole root cannot take changes")
	case to.IsSame(own):
		return nil, errdefs.New(errdefs.Invalid, "apply to %s: it is the sandbox's own source; leave the directory out", to.Path)
	}
	return &to, nil
}

// openToApply opens the sandbox to apply its changes to the source or to Options.To.
func openToApply(s *record.Sandbox, o Options) (*changes.Work, error) {
	if o.To == nil {
		return changes.OpenTo(s, record.PurposeApply, o.Drop, o.DryRun)
	}
	return changes.OpenBy(s, record.PurposeApply, o.Drop, o.DryRun, func(bool) (*changes.Work, error) {
		source, err := o.To.Open()
		if err != nil {
			return nil, err
		}
		w, err := changes.OpenOver(s, source, *o.To, layer.Options{ReadOnly: true, Elsewhere: true})
		if err != nil {
			return nil, err
		}
		// A separate list, because leftovers of a killed apply are in another directory.
		w.Elsewhere, w.ApplyLockFile = true, fmt.Sprintf("apply-to-%d-%d.lock", o.To.Dev, o.To.Ino)
		return w, nil
	})
}
