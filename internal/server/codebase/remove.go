package codebase

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Remove deletes p in one step: a file, a symbolic link (not its target), or a directory with
// everything below it. Errors: NotFound; Invalid for the root, and if the path has a symbolic link;
// Denied; Precondition for a linked codebase.
func (c *Codebase) Remove(p vpath.Path) error {
	if p.IsRoot() {
		return errdefs.New(errdefs.Invalid, "remove: the path is empty or the root")
	}
	name := c.stagedName()
	err := c.change(func(d dirs) error {
		st, err := d.takeAway(p, name)
		if err != nil {
			return err
		}
		return c.discountLocked(d, st, name)
	})
	if err == nil {
		err = c.clear(name)
	}
	return wrapRead("remove", p, err)
}

// takeAway moves p to staging and describes it.
func (d dirs) takeAway(p vpath.Path, name string) (*unix.Stat_t, error) {
	parent, base, err := openParent(d.files, p)
	if err != nil {
		return nil, err
	}
	defer unix.Close(parent)
	st, err := lstat(parent, base)
	if err != nil {
		return nil, err
	}
	err = unix.Renameat(parent, base, d.staging, name)
	if errors.Is(err, unix.EACCES) && isDir(st) {
		// A directory must be writable to move to another parent.
		if err = safefs.OpenUp(parent, base); err == nil {
			err = unix.Renameat(parent, base, d.staging, name)
		}
	}
	return st, err
}

// discountLocked subtracts the staged entry name from the usage.
func (c *Codebase) discountLocked(d dirs, st *unix.Stat_t, name string) error {
	var g SizeDelta
	g.add(st, -1)
	if isDir(st) && st.Mode&0o700 != 0o700 {
		return c.recountLocked(d.files) // it may not have been counted
	}
	if isDir(st) {
		below, err := count(d.staging, vpath.Root.Child(name), false)
		if err != nil {
			return c.recountLocked(d.files)
		}
		g = g.minus(below)
	}
	c.growLocked(g, nil)
	return nil
}

// clear deletes the staged entry name.
func (c *Codebase) clear(name string) error {
	staging, err := c.open(stagingDir)
	if errors.Is(err, unix.ENOENT) || errdefs.Is(err, errdefs.NotFound) {
		return nil // the codebase was deleted meanwhile
	}
	if err != nil {
		return err
	}
	defer unix.Close(staging)
	return safefs.RemoveTreeAt(staging, name)
}
