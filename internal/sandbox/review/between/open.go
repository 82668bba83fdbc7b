package between

import (
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
)

// Open opens a state of a sandbox to read it: a snapshot, "now" or "", or "source". It is that of
// a mount, or with "" of the workspace. Close it after. Errors: NotFound for a snapshot, for a
// mount, and for a snapshot that is older than the mount.
func Open(sb *record.Sandbox, ref, mount string) (*changes.Work, error) {
	part, err := sb.InMount(mount)
	if err != nil {
		return nil, err
	}
	switch ref {
	case "", snapshot.Present:
		return changes.OpenState(part, part.LayersDir())
	case snapshot.Source:
		return changes.OpenState(part, "")
	}
	l, err := snapshot.Read(sb)
	if err != nil {
		return nil, err
	}
	s, err := l.Find(sb.Name(), ref)
	if err != nil {
		return nil, err
	}
	dir, has := s.LayerDir(sb, mount)
	if !has && mount != "" {
		return nil, errdefs.New(errdefs.NotFound, "sandbox %s: snapshot %s was taken before the sandbox had the mount %s", sb.Name(), s.Ref(), mount)
	}
	return changes.OpenState(part, dir)
}

// CheckSources refuses states of two sources. The names are for the message. Errors: Precondition.
func CheckSources(earlier, later *changes.Work, earlierName, laterName string) error {
	if a, z := earlier.Sandbox.Stored.Source, later.Sandbox.Stored.Source; !a.IsSame(z) {
		return errdefs.New(errdefs.Precondition, "%s and %s: they have two sources, %s and %s", earlierName, laterName, a.Path, z.Path)
	}
	return nil
}
