package snapshot

import (
	"maps"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// Restored is what Restore did.
type Restored struct {
	To Snapshot
	// Kept is the snapshot that has what was there before; its Number is 0 if another snapshot has
	// it already, or if it was the source without changes.
	Kept Snapshot
	// Left are the mounts that the snapshot does not have, and which stay as they are.
	Left []string
}

// Restore brings a sandbox, which the caller has locked, back to a snapshot. What was there is kept
// as a snapshot. After a crash the sandbox is as before, or, of several parts, some are as in the
// snapshot; Restore can then be repeated. Errors: NotFound; Precondition if a mount has another
// source now.
func Restore(sb *record.Sandbox, ref string) (Restored, error) {
	var r Restored
	l, err := Read(sb)
	if err == nil {
		r.To, err = l.Find(sb.Name(), ref)
	}
	if err == nil {
		r.Left, err = r.To.fits(sb)
	}
	if err != nil {
		return r, err
	}
	release, err := sb.Home.HoldLayers()
	if err != nil {
		return r, err
	}
	if r.Kept, err = keepPresent(sb, &l, &r.To); err == nil {
		failpoint.At("restore: kept")
		err = rewind(sb, &r.To)
	}
	release()
	if err != nil {
		return r, err
	}
	failpoint.At("restore: done")
	if err := sb.Log(audit.SnapshotChanged{Action: audit.SnapshotRestored, Snapshot: r.To.Ref(), Label: r.To.Label, Kept: refOf(&r.Kept)}); err != nil {
		return r, err
	}
	return r, Sweep(sb.Home)
}

func refOf(s *Snapshot) string {
	if s.Number == 0 {
		return ""
	}
	return s.Ref()
}

// fits returns the mounts of the sandbox that the snapshot does not have.
func (s *Snapshot) fits(sb *record.Sandbox) (left []string, err error) {
	for _, part := range sb.Parts() {
		of, ok := s.Parts[part.Mount()]
		switch {
		case !ok:
			left = append(left, part.Mount())
		case of.Source != part.Stored.Source.Path:
			return nil, errdefs.New(errdefs.Precondition, "sandbox %s: snapshot %s is of the source %s, and the source is %s now", part.Ref(), s.describe(), of.Source, part.Stored.Source.Path)
		}
	}
	return left, nil
}

// keepPresent makes a snapshot of what there is, unless one has it.
func keepPresent(sb *record.Sandbox, l *List, to *Snapshot) (Snapshot, error) {
	layers, err := FreezeStopped(sb)()
	if err != nil {
		return Snapshot{}, err
	}
	changed := false
	for _, name := range layers {
		changed = changed || name != ""
	}
	for _, s := range l.Snapshots {
		changed = changed && !maps.Equal(s.layersOf(), layers)
	}
	if !changed {
		return Snapshot{}, nil
	}
	kept := Snapshot{Reason: BeforeRestore, Command: to.Ref()}
	return TakeHeld(sb, kept, layers)
}

func rewind(sb *record.Sandbox, to *Snapshot) error {
	for _, part := range sb.Parts() {
		of, ok := to.Parts[part.Mount()]
		if !ok {
			continue
		}
		if err := layer.Rewind(part.LayersDir(), sb.Home.LayerStore(), of.Layer); err != nil {
			return errdefs.New(errdefs.KindOf(err), "sandbox %s: %w", part.Ref(), err)
		}
		failpoint.At("restore: rewound")
	}
	return nil
}
