package cgroup

import (
	"errors"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Sweep kills what is left in the groups whose owners died, and removes them,
// as far as mine says of their names that they are the caller's. It looks for
// them in all of the hierarchies, wherever their owners were. Errors: those of
// Kill, Denied, Internal; the other groups are swept all the same.
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
			_ = h.kernel.rmdir(parent) // fails while it has groups
		}
	}
	return errors.Join(errs...)
}

// sweepGroup removes one group if nobody holds its lock.
func (h Host) sweepGroup(dir string) error {
	lock, err := lockDir(dir)
	if errors.Is(err, unix.EWOULDBLOCK) || gone(err) {
		return nil // it has an owner, or had one until now
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
