package supervise

import (
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/fusefs"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// stateAt returns what the view has at a path; nil for nothing.
func (s *supervisor) stateAt(p vpath.Path) *layer.Info {
	return stateIn(s.stack, p)
}

func stateIn(stack *layer.Stack, p vpath.Path) *layer.Info {
	info, err := stack.Lookup(p)
	if err != nil {
		return nil
	}
	return &info
}

// states returns what the view of a mount has at the paths of versions, while it is watched. ""
// is the workspace.
func (s *supervisor) states(mount string, stack *layer.Stack, versions []changes.Version) map[vpath.Path]*layer.Info {
	if !s.watches.watches(mount) {
		return nil
	}
	states := map[vpath.Path]*layer.Info{}
	for _, v := range versions {
		if p, err := v.At(); err == nil {
			states[p] = stateIn(stack, p)
		}
	}
	return states
}

// tellDropped tells of the paths that show another state than before: what was
// discarded, not what was applied.
func (s *supervisor) tellDropped(mount string, stack *layer.Stack, before map[vpath.Path]*layer.Info) {
	for p, old := range before {
		now := stateIn(stack, p)
		c := fusefs.Change{Path: p, Kind: api.Modified}
		switch {
		case old == nil && now == nil:
			continue
		case old == nil:
			c.Kind = api.Created
		case now == nil:
			c.Kind = api.Deleted
		case old.Mode == now.Mode && old.Size == now.Size && old.Mtime == now.Mtime, old.IsDir() && now.IsDir():
			continue
		}
		s.watches.note(mount, c)
	}
}

// tellRenewed tells of paths at which the server has changed the source.
func (s *supervisor) tellRenewed(paths []vpath.Path) {
	if !s.watches.watches("") {
		return
	}
	for _, p := range paths {
		now := s.stateAt(p)
		switch {
		case now == nil && !s.isAbsent(p):
			s.watches.note("", fusefs.Change{Path: p, Kind: api.Deleted})
		case now != nil && now.Origin == layer.Source:
			s.watches.note("", fusefs.Change{Path: p, Kind: api.Modified})
		}
	}
}

// isAbsent reports whether the view shows nothing of the source at p.
func (s *supervisor) isAbsent(p vpath.Path) bool {
	if s.absent == nil {
		return false
	}
	for a := range p.Ancestors() {
		if s.absent(a, true) {
			return true
		}
	}
	return s.absent(p, false) || s.absent(p, true)
}
