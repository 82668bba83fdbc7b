package inner

import (
	"slices"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// Elsewhere are the effects of steps outside of the areas, which are the sandbox's writable mounts.
// There everything is read-only or private already, so steps can only cover.
type Elsewhere struct {
	Covers []isolate.Covering
	// Hidden are the read-only mounts that do not show.
	Hidden []string
}

// SplitOff returns what steps mean outside of the areas, of which the roots are given. mounts are
// read-only mounts of the host's files, which a step must show. Errors: Unsupported, for what
// cannot be honoured.
func SplitOff(steps []Step, areas, mounts []string) (Elsewhere, error) {
	e := Elsewhere{Hidden: slices.Clone(mounts)}
	for _, s := range steps {
		at := string(s.Path)
		inArea := slices.ContainsFunc(areas, func(root string) bool { return safefs.IsBelow(at, root) })
		if inArea {
			continue
		}
		switch s.Kind {
		case ReadOnly, Writable:
			if err := e.show(at); err != nil {
				return Elsewhere{}, err
			}
		case Empty, File:
			if s.Content != "" {
				return Elsewhere{}, errdefs.New(errdefs.Unsupported, "%s: a file with contents is only possible in the workspace, the home directory, mounts and /tmp", at)
			}
			e.cover(s, mounts)
		case Freeze:
			for i := range e.Covers {
				e.Covers[i].ReadOnly = e.Covers[i].ReadOnly || e.Covers[i].Path == at
			}
		case Dir: // no program can make what is missing there, unless the place is private
		}
	}
	return e, nil
}

// show undoes covers at and below a path.
func (e *Elsewhere) show(at string) error {
	e.Covers = slices.DeleteFunc(e.Covers, func(c isolate.Covering) bool { return safefs.IsBelow(c.Path, at) })
	for _, c := range e.Covers {
		if safefs.IsBelow(at, c.Path) {
			return errdefs.New(errdefs.Unsupported, "%s: cannot be shown in %s, which is hidden", at, c.Path)
		}
	}
	for _, m := range e.Hidden {
		if m != at && safefs.IsBelow(at, m) {
			return errdefs.New(errdefs.Unsupported, "%s: the mount %s can only be shown as a whole", at, m)
		}
	}
	e.Hidden = slices.DeleteFunc(e.Hidden, func(m string) bool { return safefs.IsBelow(m, at) })
	return nil
}

// cover hides what is at and below a path. The root itself cannot be covered: the system
// directories stay.
func (e *Elsewhere) cover(s Step, mounts []string) {
	at := string(s.Path)
	for _, m := range mounts {
		if safefs.IsBelow(m, at) && !slices.Contains(e.Hidden, m) {
			e.Hidden = append(e.Hidden, m)
		}
	}
	e.Covers = slices.DeleteFunc(e.Covers, func(c isolate.Covering) bool { return safefs.IsBelow(c.Path, at) })
	if at == "/" || slices.Contains(mounts, at) {
		return
	}
	e.Covers = append(e.Covers, isolate.Covering{Path: at, File: s.Kind == File, Mode: s.Mode})
}
