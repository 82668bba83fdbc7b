package snapshot

import (
	"errors"
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
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
	// Change changes the record of a fork before it is made; nil changes nothing.
	Change func(*record.Record)
}

// Fork makes sandboxes that begin with a state of another one, and returns them, also beside an
// error. They share its frozen layers. A fork has the source, the policy and the settings of the
// other sandbox; it has no snapshots, kept home directory and scratch directories of it. Errors:
// Exists; Invalid for a name; NotFound for the snapshot; Unsupported for a sandbox of a server, and
// for one with a clean repository.
func Fork(sb *record.Sandbox, o ForkOptions) ([]*record.Sandbox, error) {
	if err := MayHave(sb); err != nil {
		return nil, err
	}
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
	layers, number, err := LayersAt(sb, o.Snapshot, o.Freeze)
	if err != nil {
		return nil, err
	}
	origin := &Origin{Name: sb.Name(), ID: sb.ID(), Snapshot: number, Layer: layers[""]}
	failpoint.At("fork: frozen")
	var forks []*record.Sandbox
	for _, name := range o.Names {
		fork, err := forkOne(sb, name, layers, origin, o.Change)
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

// LayersAt returns the layers of the snapshot that ref names, with its number, or with "" those of
// the present state, by freeze, and 0. The caller holds the layers. Errors: NotFound; Precondition
// if a mount has another source now, or if the snapshot lacks a mount.
func LayersAt(sb *record.Sandbox, ref string, freeze Freezing) (map[string]string, int, error) {
	if ref == "" {
		if err := requireVersion(sb); err != nil {
			return nil, 0, err
		}
		layers, err := freeze()
		return layers, 0, err
	}
	l, err := Read(sb)
	if err != nil {
		return nil, 0, err
	}
	s, err := l.Find(sb.Name(), ref)
	if err != nil {
		return nil, 0, err
	}
	left, err := s.fits(sb)
	if err == nil && len(left) > 0 {
		err = errdefs.New(errdefs.Precondition, "sandbox %s: snapshot %s does not have the mount %s, which the sandbox has now", sb.Name(), s.describe(), left[0])
	}
	return s.layersOf(), s.Number, err
}

func forkOne(sb *record.Sandbox, name string, layers map[string]string, origin *Origin, change func(*record.Record)) (*record.Sandbox, error) {
	r := sb.Record()
	r.Name, r.HostUID, r.PublishAddress = name, 0, "" // each sandbox has its own
	if r.Runtime == record.RuntimeDocker {
		r.UID = nil // it is that of the host, which is the sandbox's own
	}
	if change != nil {
		change(&r)
	}
	fork, err := sb.Home.CreateWith(r, func(dir string) error {
		for mount, below := range layers {
			if err := layer.Rewind(record.PartLayersDir(dir, mount), sb.Home.LayerStore(), below); err != nil {
				return errdefs.New(errdefs.KindOf(err), "sandbox %s: %w", name, err)
			}
		}
		l := List{Version: listVersion, Next: 1, Origin: origin}
		return l.write(dir)
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
