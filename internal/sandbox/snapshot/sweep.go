package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// gonePrefix begins the names of layers that are being removed.
const gonePrefix = ".gone-"

// Sweep removes the frozen layers that no sandbox and no snapshot refers to. While another process
// makes layers or references it removes nothing: a later call does. It also removes nothing if it
// cannot read all references. Errors: Precondition for a damaged list of snapshots.
func Sweep(home *record.Home) error {
	store := home.LayerStore()
	entries, err := os.ReadDir(store)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return record.HostError("layers", err)
	}
	release, err := home.HoldLayersAlone()
	if release == nil {
		return err
	}
	gone, err := setAside(home)
	release()
	errs := []error{err}
	for _, path := range gone {
		if err := safefs.RemoveTree(path); err != nil {
			errs = append(errs, record.HostError("remove layer", err))
		}
	}
	return errors.Join(errs...)
}

// setAside renames the layers that may be removed and returns their paths, with those that an
// earlier Sweep has left.
func setAside(home *record.Home) ([]string, error) {
	used, err := references(home)
	if err != nil {
		return nil, err
	}
	store := home.LayerStore()
	entries, err := os.ReadDir(store)
	if err != nil {
		return nil, record.HostError("layers", err)
	}
	var gone []string
	for _, e := range entries {
		path := filepath.Join(store, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), gonePrefix):
			gone = append(gone, path)
		case layer.IsLayerName(e.Name()) && !used[e.Name()]:
			aside := filepath.Join(store, gonePrefix+e.Name())
			if err := os.Rename(path, aside); err != nil {
				return gone, record.HostError("layers", err)
			}
			failpoint.At("sweep: aside")
			gone = append(gone, aside)
		}
	}
	return gone, nil
}

// references returns the names of the layers to which something refers.
func references(home *record.Home) (map[string]bool, error) {
	dirs, err := home.Dirs()
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, dir := range dirs {
		if err := referencesOf(dir, home.LayerStore(), used); err != nil {
			return nil, err
		}
	}
	return used, nil
}

// referencesOf adds the layers to which the sandbox in dir refers.
func referencesOf(dir, store string, used map[string]bool) error {
	heads, err := record.LayersDirsIn(dir)
	if err != nil {
		return err
	}
	for _, head := range heads {
		if err := addParents(head, store, used); err != nil {
			return err
		}
	}
	l, err := readList(dir)
	if err != nil {
		return err
	}
	if l.Origin != nil {
		if err := addLayer(l.Origin.Layer, store, used); err != nil {
			return err
		}
	}
	for _, s := range l.Snapshots {
		for _, part := range s.Parts {
			if err := addLayer(part.Layer, store, used); err != nil {
				return err
			}
		}
	}
	return nil
}

// addLayer adds a layer and those of which it was made.
func addLayer(name, store string, used map[string]bool) error {
	if name == "" || used[name] {
		return nil
	}
	used[name] = true
	return addParents(filepath.Join(store, name), store, used)
}

// addParents adds the layers of which the head or the layer in dir was made.
func addParents(dir, store string, used map[string]bool) error {
	lineage, err := layer.LineageOf(dir)
	if err != nil {
		return errdefs.New(errdefs.KindOf(err), "%s: %w", dir, err)
	}
	for _, name := range lineage.Parents {
		if err := addLayer(name, store, used); err != nil {
			return err
		}
	}
	return nil
}
