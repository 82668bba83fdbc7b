package snapshot

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// Freezing freezes the deltas of a sandbox and returns the layers by the name of the mount, "" for
// the workspace.
type Freezing func() (map[string]string, error)

// FreezeStopped returns the Freezing of a sandbox that the caller has locked.
func FreezeStopped(sb *record.Sandbox) Freezing {
	return func() (map[string]string, error) {
		layers := map[string]string{}
		for _, part := range sb.Parts() {
			name, err := layer.FreezeHead(part.LayersDir(), sb.Home.LayerStore())
			if err != nil {
				return nil, errdefs.New(errdefs.KindOf(err), "sandbox %s: %w", part.Ref(), err)
			}
			layers[part.Mount()] = name
		}
		return layers, nil
	}
}

// Before returns what Take needs for a snapshot before a command.
func Before(argv []string) Snapshot {
	const longest = 200
	command := vpath.Escape(strings.Join(argv, " "))
	if len(command) > longest {
		command = strings.ToValidUTF8(command[:longest], "") + "…"
	}
	return Snapshot{Reason: BeforeCommand, Command: command}
}

// Take makes a snapshot of what freeze returns, with the reserve of a full disk if it needs it. s
// has its label, reason and command. Errors: Exists for a label that another snapshot has;
// Exhausted if there are too many; those of freeze.
func Take(sb *record.Sandbox, s Snapshot, freeze Freezing) (Snapshot, error) {
	if s.Label != "" {
		if err := CheckLabel(s.Label); err != nil {
			return Snapshot{}, err
		}
	}
	release, err := sb.Home.HoldLayers()
	if err != nil {
		return Snapshot{}, err
	}
	pruned, err := take(sb, &s, freeze)
	release()
	if err == nil && pruned {
		err = Sweep(sb.Home)
	}
	return s, err
}

// TakeHeld is Take for a caller that holds the layers, which it has frozen, and sweeps afterwards.
func TakeHeld(sb *record.Sandbox, s Snapshot, layers map[string]string) (Snapshot, error) {
	_, err := take(sb, &s, func() (map[string]string, error) { return layers, nil })
	return s, err
}

func take(sb *record.Sandbox, s *Snapshot, freeze Freezing) (pruned bool, err error) {
	l, err := Read(sb)
	if err == nil {
		err = l.mayAdd(sb.Name(), s)
	}
	if err == nil {
		err = withRoom(sb.Home, func() error { return RequireVersion(sb) })
	}
	if err != nil {
		return false, err
	}
	var layers map[string]string
	err = withRoom(sb.Home, func() error {
		layers, err = freeze()
		return err
	})
	if err != nil {
		return false, err
	}
	failpoint.At("snapshot: frozen")
	if s.SyncHeld, err = sb.IsSyncHeld(); err != nil {
		return false, err
	}
	s.Parts = partsOf(sb, layers)
	err = withRoom(sb.Home, func() error {
		pruned, err = enter(sb, s)
		return err
	})
	failpoint.At("snapshot: listed")
	if err != nil {
		return false, err
	}
	return pruned, withRoom(sb.Home, func() error {
		return sb.Log(audit.SnapshotChanged{Action: audit.SnapshotTaken, Snapshot: s.Ref(), Label: s.Label, Reason: string(s.Reason)})
	})
}

// withRoom calls do, and once more with the reserve if there was no room. Only a full disk makes it
// look at the disk: to probe it takes a tenth of a snapshot. do must fail without effect.
func withRoom(h *record.Home, do func() error) error {
	err := do()
	if !errdefs.Is(err, errdefs.Exhausted) {
		return err
	}
	defer h.MakeRoom()()
	return do()
}

// enter adds a snapshot to the list, with the next number.
func enter(sb *record.Sandbox, s *Snapshot) (pruned bool, err error) {
	err = change(sb, func(l *List) error {
		if err := l.mayAdd(sb.Name(), s); err != nil {
			return err
		}
		s.Number, s.CreatedAt = l.Next, time.Now().UTC().Truncate(time.Millisecond)
		l.Next++
		l.Snapshots = append(l.Snapshots, *s)
		pruned = l.prune(s.Reason)
		return nil
	})
	return pruned, err
}

// RequireVersion makes the record one that an agentfense without snapshots refuses: it would not
// see what is in frozen layers. sb may be a mount of a sandbox.
func RequireVersion(sb *record.Sandbox) error {
	if sb.Stored.SchemaVersion == record.SchemaVersion {
		return nil
	}
	whole := sb
	if sb.Mount() != "" {
		var err error
		if whole, err = sb.Home.Open(sb.Name()); err != nil {
			return err
		}
	}
	return whole.Update(func(*record.Record) error { return nil })
}

// mayAdd refuses a snapshot that the list cannot take.
func (l *List) mayAdd(sandbox string, s *Snapshot) error {
	if s.Reason != "" {
		return nil
	}
	for _, other := range l.Snapshots {
		if s.Label != "" && other.Label == s.Label {
			return errdefs.New(errdefs.Exists, "sandbox %s: snapshot %s has the label %s already", sandbox, other.Ref(), s.Label)
		}
	}
	if asked := l.Asked(); asked >= MaxAsked {
		return errdefs.New(errdefs.Exhausted, "sandbox %s: has %d snapshots, which is the limit; remove some%s", sandbox, asked, errdefs.Command("snapshot rm "+sandbox+" SNAPSHOT"))
	}
	return nil
}

// Asked returns how many snapshots a person asked for.
func (l *List) Asked() int {
	asked := 0
	for _, s := range l.Snapshots {
		if s.Reason == "" {
			asked++
		}
	}
	return asked
}

// prune drops the oldest snapshots of a reason beyond MaxAutomatic.
func (l *List) prune(reason Reason) bool {
	if reason == "" {
		return false
	}
	more := -MaxAutomatic
	for _, s := range l.Snapshots {
		if s.Reason == reason {
			more++
		}
	}
	before := len(l.Snapshots)
	l.Snapshots = slices.DeleteFunc(l.Snapshots, func(s Snapshot) bool {
		if s.Reason != reason || more <= 0 {
			return false
		}
		more--
		return true
	})
	return len(l.Snapshots) < before
}

func partsOf(sb *record.Sandbox, layers map[string]string) map[string]Part {
	parts := map[string]Part{}
	for _, part := range sb.Parts() {
		if name, ok := layers[part.Mount()]; ok {
			of := part.Stored.Source
			parts[part.Mount()] = Part{Layer: name, Source: of.Path, Dev: of.Dev, Ino: of.Ino, Born: of.Born}
		}
	}
	return parts
}

// Remove removes snapshots, by reference. Errors: NotFound, and then it removes none.
func Remove(sb *record.Sandbox, refs ...string) error {
	var removed []Snapshot
	err := change(sb, func(l *List) error {
		for _, ref := range refs {
			s, err := l.Find(sb.Name(), ref)
			if err != nil {
				return err
			}
			removed = append(removed, s)
		}
		l.Snapshots = slices.DeleteFunc(l.Snapshots, func(s Snapshot) bool {
			return slices.ContainsFunc(removed, func(r Snapshot) bool { return r.Number == s.Number })
		})
		return nil
	})
	if err != nil {
		return err
	}
	failpoint.At("snapshot: removed")
	var errs []error
	for _, s := range removed {
		errs = append(errs, sb.Log(audit.SnapshotChanged{Action: audit.SnapshotRemoved, Snapshot: s.Ref(), Label: s.Label}))
	}
	return errors.Join(append(errs, Sweep(sb.Home))...)
}
