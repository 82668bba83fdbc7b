package between

import (
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
)

// Open opens a state of the workspace of a sandbox to read it: a snapshot, "now" or "", or
// "source". Close it after. Errors: NotFound for a snapshot.
func Open(sb *record.Sandbox, ref string) (*changes.Work, error) {
	switch ref {
	case "", snapshot.Present:
		return changes.OpenState(sb, sb.LayersDir())
	case snapshot.Source:
		return changes.OpenState(sb, "")
	}
	l, err := snapshot.Read(sb)
	if err != nil {
		return nil, err
	}
	s, err := l.Find(sb.Name(), ref)
	if err != nil {
		return nil, err
	}
	dir, _ := s.LayerDir(sb, "")
	return changes.OpenState(sb, dir)
}

// CheckSources refuses states of two sources. The names are for the message. Errors: Precondition.
func CheckSources(earlier, later *changes.Work, earlierName, laterName string) error {
	if a, z := earlier.Sandbox.Stored.Source, later.Sandbox.Stored.Source; !a.IsSame(z) {
		return errdefs.New(errdefs.Precondition, "%s and %s: they have two sources, %s and %s", earlierName, laterName, a.Path, z.Path)
	}
	return nil
}
