package changes

import (
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// Selection returns a function that reports whether a path is at or below one of paths.
// Without paths it is always true. There may be very many paths.
func Selection(paths []vpath.Path) func(vpath.Path) bool {
	if len(paths) == 0 {
		return func(vpath.Path) bool { return true }
	}
	meant := make(map[vpath.Path]bool, len(paths))
	for _, p := range paths {
		meant[p] = true
	}
	return func(p vpath.Path) bool {
		for ; !meant[p]; p = p.Dir() {
			if p.IsRoot() {
				return false
			}
		}
		return true
	}
}

// selected returns which changes paths select. There may be very many of both.
func selected(all []layer.Change, paths []vpath.Path) ([]bool, error) {
	wanted := make([]bool, len(all))
	met := make(map[vpath.Path]bool, len(paths)) // whether a change was found at each path
	for _, p := range paths {
		met[p] = false
	}
	for i, c := range all {
		wanted[i] = len(paths) == 0
		for p := c.Path.Plain(); len(met) > 0; p = p.Dir() {
			if _, meant := met[p]; meant {
				wanted[i], met[p] = true, true
			}
			if p.IsRoot() {
				break
			}
		}
	}
	for _, p := range paths {
		if !met[p] {
			return nil, errdefs.New(errdefs.NotFound, "path %s: nothing changed there", p)
		}
	}
	return wanted, nil
}

// addWays marks the directories that the sandbox made and that contain a wanted change.
func addWays(all []layer.Change, wanted []bool) {
	ways := map[vpath.Path]bool{}
	for i, c := range slices.Backward(all) {
		made := (c.Kind == layer.Created || c.TypeChanged) && record.IsDir(c.Info.Mode)
		wanted[i] = wanted[i] || made && ways[c.Path]
		if wanted[i] {
			ways[c.Path.Dir()] = true
		}
	}
	// Between two directories that the sandbox made there is none of the source, because
	// the sandbox made everything in a directory that it made.
}
