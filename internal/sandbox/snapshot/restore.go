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

// ReplacedError says that the source of a sandbox is another directory than that of a snapshot, at
// the same path: the sandbox took it after the snapshot. Or the directory at the path is not the
// source of the sandbox. Its kind is Precondition.
type ReplacedError struct {
	Snapshot string // its name; "" if the source of the sandbox is replaced
	why      error
}

// Error says so.
func (e *ReplacedError) Error() string { return e.why.Error() }

// Unwrap returns the error with its kind.
func (e *ReplacedError) Unwrap() error { return e.why }

// Restore brings a sandbox, which the caller has locked, back to a snapshot. What was there is kept
// as a snapshot. After a crash the sandbox is as before, or, of several parts, some are as in the
// snapshot; Restore can then be repeated. With rebase the snapshot may be of an earlier directory
// at the path of the source; then what it recorded of the files still says which changes conflict.
// Errors: NotFound; Precondition if a source is at another path now; *ReplacedError.
func Restore(sb *record.Sandbox, ref string, rebase bool) (Restored, error) {
	var r Restored
	l, err := Read(sb)
	if err == nil {
		r.To, err = l.Find(sb.Name(), ref)
	}
	if err == nil {
		r.Left, err = r.To.fits(sb, rebase)
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
		if r.To.SyncHeld {
			err = sb.HoldSync()
		}
		if err == nil {
			err = rewind(sb, &r.To)
		}
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

// fits returns the mounts of the sandbox that the snapshot does not have. Errors: as Restore.
func (s *Snapshot) fits(sb *record.Sandbox, rebase bool) (left []string, err error) {
	for _, part := range sb.Parts() {
		of, ok := s.Parts[part.Mount()]
		now := part.Stored.Source
		switch {
		case !ok:
			left = append(left, part.Mount())
		case of.Source != now.Path:
			return nil, errdefs.New(errdefs.Precondition, "sandbox %s: snapshot %s is of the source %s, and the source is %s now", part.Ref(), s.describe(), of.Source, now.Path)
		case !rebase && of.isReplaced(now):
			return nil, &ReplacedError{s.Ref(), errdefs.New(errdefs.Precondition, "sandbox %s: snapshot %s is of an earlier directory at %s, not the present one", part.Ref(), s.describe(), now.Path)}
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
