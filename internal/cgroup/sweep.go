package cgroup

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Stale is a group whose owner died.
type Stale struct {
	Name      string
	Processes int // still in it
}

// Stale lists the groups whose owners died without deleting them, sorted by
// name. It walks all of the hierarchies: for doctor, not for every start.
func (h Host) Stale() ([]Stale, error) { return h.sweep(false) }

// Sweep removes the stale groups that have no process left, and lists those
// that have.
func (h Host) Sweep() ([]Stale, error) { return h.sweep(true) }

func (h Host) sweep(remove bool) ([]Stale, error) {
	found := map[string]int{}
	for _, t := range h.hierarchies {
		for _, parent := range findParents(t.mount) {
			groups, err := subgroups(parent)
			if err != nil && !gone(err) {
				return nil, failed(parent, "list", err)
			}
			for _, dir := range groups {
				h.sweepGroup(dir, remove, found)
			}
			if remove {
				_ = h.kernel.rmdir(parent) // fails while it has groups
			}
		}
	}
	var stale []Stale
	for name, n := range found {
		stale = append(stale, Stale{Name: name, Processes: n})
	}
	slices.SortFunc(stale, func(a, b Stale) int { return cmp.Compare(a.Name, b.Name) })
	return stale, nil
}

// sweepGroup notes or removes one group if nobody holds its lock.
func (h Host) sweepGroup(dir string, remove bool, found map[string]int) {
	lock, err := lockDir(dir)
	if err != nil {
		return
	}
	defer unix.Close(lock)
	pids, err := allProcesses(dir)
	if err != nil {
		return
	}
	if remove && len(pids) == 0 && h.kernel.tryRemove(dir) == nil {
		return
	}
	name := filepath.Base(dir)
	found[name] = max(found[name], len(pids))
}

// findParents returns the directories that hold our groups. Groups come and go
// while it walks, and some may not be read: those are not ours.
func findParents(mount string) []string {
	var parents []string
	_ = filepath.WalkDir(mount, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && d != nil && d.IsDir() && !errors.Is(err, fs.ErrNotExist):
			return fs.SkipDir
		case err != nil || !d.IsDir():
			return nil
		case d.Name() == parentName:
			parents = append(parents, path)
			return fs.SkipDir
		}
		return nil
	})
	return parents
}
