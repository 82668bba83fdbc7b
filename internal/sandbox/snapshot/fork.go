package snapshot

import (
	"errors"
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// ForkOptions say what forks begin with.
type ForkOptions struct {
	// Names are those of the forks, none of which exists.
	Names []string
	// Snapshot names the state with which they begin; "" means that of now, by Freeze.
	Snapshot string
	Freeze   Freezing
	// Rebase lets the snapshot be of an earlier directory at the path of the source, as in Restore,
	// and the source be lost.
	Rebase bool
	// Change changes the record of a fork before it is made; nil changes nothing.
	Change func(*record.Record)
}

// Fork makes sandboxes that begin with a state of another one, and returns them, also beside an
// error. They share its frozen layers. A fork has the source, the policy and the settings of the
// other sandbox; it has no snapshots, kept home directory and scratch directories of it. If a
// server held the sync of the state, it holds that of the fork. Errors: Exists; Invalid for a name;
// NotFound for the snapshot; those of record.Source.Open if the source is lost; *ReplacedError;
// Unsupported for a sandbox with a clean repository.
func Fork(sb *record.Sandbox, o ForkOptions) ([]*record.Sandbox, error) {
	if sb.Record().Git.IsClean() {
		return nil, errdefs.New(errdefs.Unsupported, "sandbox %s: cannot be forked: its commits are in its clean repository (--git=clean), which a fork would not have; make another sandbox of the source", sb.Name())
	}
	for i, name := range o.Names {
		if err := record.CheckName(name); err != nil {
			return nil, err
		}
		_, err := sb.Home.Open(name)
		if err == nil || slices.Contains(o.Names[:i], name) {
			return nil, errdefs.New(errdefs.Exists, "sandbox %s: exists already", name)
		}
		if !errdefs.Is(err, errdefs.NotFound) {
			return nil, err
		}
	}
	release, err := sb.Home.HoldLayers()
	if err != nil {
		return nil, err
	}
	defer release()
	from, err := state(sb, o)
	if err != nil {
		return nil, err
	}
	if err := checkSources(sb, from.layers, o.Rebase); err != nil {
		return nil, err
	}
	from.origin.Layer = from.layers[""]
	failpoint.At("fork: frozen")
	var forks []*record.Sandbox
	for _, name := range o.Names {
		fork, err := forkOne(sb, name, &from, o.Change)
		if err != nil {
			return forks, err
		}
		forks = append(forks, fork)
		if err := sb.Log(audit.SnapshotChanged{Action: audit.SnapshotForked, Snapshot: o.Snapshot, Fork: name}); err != nil {
			return forks, err
		}
		failpoint.At("fork: made")
	}
	return forks, nil
}

// checkSources refuses a lost source, because no command can run in a fork of it. A mount without
// changes uses the directory that is there.
func checkSources(sb *record.Sandbox, layers map[string]string, rebase bool) error {
	for _, part := range sb.Parts() {
		if part.Mount() != "" && layers[part.Mount()] == "" {
			continue
		}
		isReplaced, why := part.SourceLost()
		switch {
		case why == nil:
		case !isReplaced:
			return why
		case !rebase:
			return &ReplacedError{why: why}
		}
	}
	return nil
}

// beginning is the state with which forks begin.
type beginning struct {
	layers map[string]string // by mount
	origin Origin
	held   bool // the server holds the sync
}

// state returns the state with which forks begin.
func state(sb *record.Sandbox, o ForkOptions) (b beginning, err error) {
	b.origin = Origin{Name: sb.Name(), ID: sb.ID()}
	if o.Snapshot == "" {
		if err := RequireVersion(sb); err != nil {
			return b, err
		}
		if b.layers, err = o.Freeze(); err == nil {
			b.held, err = sb.IsSyncHeld()
		}
		return b, err
	}
	l, err := Read(sb)
	if err != nil {
		return b, err
	}
	s, err := l.Find(sb.Name(), o.Snapshot)
	if err != nil {
		return b, err
	}
	left, err := s.fits(sb, o.Rebase)
	if err == nil && len(left) > 0 {
		err = errdefs.New(errdefs.Precondition, "sandbox %s: snapshot %s does not have the mount %s, which the sandbox has now", sb.Name(), s.describe(), left[0])
	}
	b.layers, b.origin.Snapshot, b.held = s.layersOf(), s.Number, s.SyncHeld
	return b, err
}

// LayersAt returns the layers of the snapshot that ref names, or with "" those of the present
// state, by freeze, and whether a server held the sync of that state. The caller holds the layers.
// Errors: NotFound; Precondition if a mount has another source now, or if the snapshot lacks a
// mount; *ReplacedError.
func LayersAt(sb *record.Sandbox, ref string, freeze Freezing) (layers map[string]string, held bool, err error) {
	b, err := state(sb, ForkOptions{Snapshot: ref, Freeze: freeze})
	return b.layers, b.held, err
}

func forkOne(sb *record.Sandbox, name string, from *beginning, change func(*record.Record)) (*record.Sandbox, error) {
	r := sb.Record()
	r.Name, r.HostUID, r.PublishAddress = name, 0, "" // each sandbox has its own
	if r.Runtime == record.RuntimeDocker {
		r.UID = nil // it is that of the host, which is the sandbox's own
	}
	if change != nil {
		before := sb.Record()
		change(&r)
		if err := r.NoteEarlier(&before); err != nil {
			return nil, err
		}
	}
	fork, err := sb.Home.CreateWith(r, func(dir string) error {
		for mount, below := range from.layers {
			if err := layer.Rewind(record.PartLayersDir(dir, mount), sb.Home.LayerStore(), below); err != nil {
				return errdefs.New(errdefs.KindOf(err), "sandbox %s: %w", name, err)
			}
		}
		if from.held {
			if err := record.HoldSyncIn(dir); err != nil {
				return errdefs.New(errdefs.KindOf(err), "sandbox %s: %w", name, err)
			}
		}
		l := List{Version: listVersion, Next: 1, Origin: &from.origin}
		return l.write(dir, safefs.WriteUnnamed)
	})
	if err != nil {
		return nil, err
	}
	variables, err := sb.Variables()
	if err == nil && len(variables) > 0 {
		err = fork.RememberVariables(variables)
	}
	if err != nil {
		return nil, errors.Join(err, sb.Home.Remove(name))
	}
	return fork, nil
}
