package cgroup

import (
	"errors"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Sweep kills the processes of groups with dead owners, and removes these groups, if mine
// returns true for the name. It searches all hierarchies, at any place. Errors: those of
// Kill, Denied, Internal. After an error Sweep continues with the other groups.
func (h Host) Sweep(mine func(name string) bool) error {
	var errs []error
	for _, t := range h.hierarchies {
		for _, parent := range findParents(t.mount) {
			groups, err := subgroups(parent)
			if err != nil && !gone(err) {
				errs = append(errs, failed(parent, "list", err))
			}
			for _, dir := range groups {
				if mine(filepath.Base(dir)) {
					errs = append(errs, h.sweepGroup(dir))
				}
			}
			_ = h.kernel.rmdir(parent) // fails while parent has groups
		}
	}
	return errors.Join(errs...)
}

// sweepGroup removes one group if its lock is free.
func (h Host) sweepGroup(dir string) error {
	lock, err := lockDir(dir)
	if errors.Is(err, unix.EWOULDBLOCK) || gone(err) {
		return nil // it has an owner, or has just been removed
	}
	if err != nil {
		return failed(dir, "lock", err)
	}
	defer unix.Close(lock)
	if err := h.kernel.killAll(dir); err != nil {
		return err
	}
	return h.kernel.remove(dir)
}

// findParents returns the directories that contain our groups. It ignores directories that
// it cannot read, which are not ours, and those that are removed during the walk.
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
