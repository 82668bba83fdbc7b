package record

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// Frozen layers are in one directory of the home. Sandboxes and their snapshots refer to them by
// name, so that a layer stays when the sandbox that made it is removed.

// LayerStore returns the directory of the frozen layers.
func (h *Home) LayerStore() string { return filepath.Join(h.dir, "frozen") }

// HoldLayers keeps frozen layers from being removed until release. Whoever makes a layer, or lets a
// sandbox or a snapshot refer to one, holds them meanwhile. It waits while another process looks
// which layers nothing refers to.
func (h *Home) HoldLayers() (release func(), err error) {
	return h.lockLayers(unix.LOCK_SH)
}

// HoldLayersAlone keeps others from HoldLayers until release. release is nil if others hold them
// now.
func (h *Home) HoldLayersAlone() (release func(), err error) {
	release, err = h.lockLayers(unix.LOCK_EX | unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return release, err
}

func (h *Home) lockLayers(how int) (func(), error) {
	f, err := os.OpenFile(filepath.Join(h.dir, "frozen.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, HostError("state directory", err)
	}
	if err := Flock(f, how); err != nil {
		f.Close()
		return nil, HostError("state directory", &os.PathError{Op: "lock", Path: f.Name(), Err: err})
	}
	return func() { f.Close() }, nil
}

// LayerDirs returns the directories of the sandbox's layers: the stack's own, and those of the
// frozen layers below it. Errors: Precondition if one is missing.
func (s *Sandbox) LayerDirs() ([]string, error) {
	dirs := []string{s.LayersDir()}
	names, err := layer.Chain(s.LayersDir(), s.Home.LayerStore())
	if err != nil {
		return nil, errdefs.New(errdefs.KindOf(err), "sandbox %s: %w", s.Name(), err)
	}
	for _, name := range names {
		dirs = append(dirs, filepath.Join(s.Home.LayerStore(), name))
	}
	return dirs, nil
}

// PartLayersDir returns the layers' directory of a mount, "" for the workspace, in the directory of
// a sandbox.
func PartLayersDir(dir, mount string) string {
	if mount != "" {
		dir = filepath.Join(dir, mountsDir, mount)
	}
	return filepath.Join(dir, layersDir)
}

// LayersDirsIn returns the directories PartLayersDir of all parts that dir has, also of a sandbox
// with a damaged record.
func LayersDirsIn(dir string) ([]string, error) {
	dirs := []string{PartLayersDir(dir, "")}
	entries, err := os.ReadDir(filepath.Join(dir, mountsDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, HostError("sandbox", err)
	}
	for _, e := range entries {
		dirs = append(dirs, PartLayersDir(dir, e.Name()))
	}
	return dirs, nil
}

// Dirs returns the directories of all sandboxes, complete or not, but those that are being
// removed.
func (h *Home) Dirs() ([]string, error) {
	entries, err := os.ReadDir(h.sandboxesDir())
	if err != nil {
		return nil, HostError("sandboxes", err)
	}
	var dirs []string
	for _, e := range entries {
		if name := e.Name(); len(name) < len(gonePrefix) || name[:len(gonePrefix)] != gonePrefix {
			dirs = append(dirs, filepath.Join(h.sandboxesDir(), name))
		}
	}
	return dirs, nil
}
