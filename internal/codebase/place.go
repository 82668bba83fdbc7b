package codebase

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/hostfile"
	"github.com/agentfense/agentfense/internal/vpath"
)

// replacing says what may make room for a file that is put in its place. A
// symbolic link makes room for another alone: an upload to its name may well
// mean the file behind it.
type replacing func(p vpath.Path, before *unix.Stat_t) error

func replaceFile(p vpath.Path, before *unix.Stat_t) error {
	if before != nil && isLink(before) {
		return unix.ELOOP
	}
	return replaceLink(p, before)
}

func replaceLink(p vpath.Path, before *unix.Stat_t) error {
	if before != nil && isDir(before) {
		return fault.New(fault.Precondition, "upload %s: a directory is there", p)
	}
	return nil
}

// put moves what is staged as name to p. g is by how much it makes the usage
// grow, without what it replaces. After an error nothing has changed.
func (d dirs) put(name string, p vpath.Path, g Growth, may replacing) error {
	parent, made, err := d.makeParents(p)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	before, err := lstat(parent, p.Base())
	if errors.Is(err, unix.ENOENT) {
		before, err = nil, nil
	}
	if err == nil {
		err = may(p, before)
	}
	if err == nil {
		g.add(before, -1)
		err = d.codebase.allowLocked(p, g)
	}
	if err == nil {
		err = unix.Renameat(d.staging, name, parent, p.Base())
	}
	if err != nil {
		d.unmake(made)
		return err
	}
	d.codebase.growLocked(g)
	return nil
}

// makeParents opens the directory that p lies in and makes it, and what is
// missing above it. made are those it made; there are none after an error.
func (d dirs) makeParents(p vpath.Path) (fd int, made []vpath.Path, err error) {
	fd, err = hostfile.OpenDir(d.files, p.Dir().Rel(), unix.O_PATH)
	if !errors.Is(err, unix.ENOENT) {
		return fd, nil, err
	}
	at, err := hostfile.OpenDir(d.files, ".", unix.O_PATH)
	if err != nil {
		return -1, nil, err
	}
	dir := vpath.Root
	for name := range p.Dir().Elements() {
		next, isNew, err := enter(at, name)
		unix.Close(at)
		dir = dir.Child(name)
		if isNew {
			made = append(made, dir)
		}
		if err != nil {
			d.unmake(made)
			return -1, nil, err
		}
		at = next
	}
	return at, made, nil
}

// enter opens the directory name of dir and makes it if it is absent.
func enter(dir int, name string) (fd int, isNew bool, err error) {
	fd, err = hostfile.OpenDir(dir, name, unix.O_PATH)
	if !errors.Is(err, unix.ENOENT) {
		return fd, false, err
	}
	if err = unix.Mkdirat(dir, name, dirMode); err != nil {
		return -1, false, err
	}
	fd, err = hostfile.OpenDir(dir, name, unix.O_PATH)
	if err != nil {
		return -1, true, err
	}
	if err = unix.Chmod(hostfile.ProcPath(fd), dirMode); err != nil { // whatever the umask
		unix.Close(fd)
		return -1, true, err
	}
	return fd, true, nil
}

// unmake removes the directories that were made for nothing, if they are still
// empty.
func (d dirs) unmake(made []vpath.Path) {
	for _, dir := range slices.Backward(made) {
		parent, name, err := openParent(d.files, dir)
		if err != nil {
			return
		}
		err = unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
		unix.Close(parent)
		if err != nil {
			return
		}
	}
}

// MakeDir makes the directory p and what is missing above it. One that is there
// gets the mode, if one is given. Of mode the permission bits count, 0 is 0755;
// the owner can always list and change it. Errors: as Upload and Commit.
func (c *Codebase) MakeDir(p vpath.Path, mode uint32) error {
	if !p.IsRoot() {
		if err := checkTarget("make directory", p); err != nil {
			return err
		}
	}
	name := c.stagedName()
	err := c.change(func(d dirs) error { return d.makeDir(name, p, mode) })
	return wrapWrite("make directory", p, err)
}

func (d dirs) makeDir(name string, p vpath.Path, mode uint32) error {
	fd, err := hostfile.OpenDir(d.files, p.Rel(), unix.O_PATH)
	if err == nil {
		defer unix.Close(fd)
		if mode&0o777 != 0 {
			err = unix.Chmod(hostfile.ProcPath(fd), mode&0o777|0o700)
			d.codebase.growLocked(Growth{})
		}
		return err
	}
	if !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := unix.Mkdirat(d.staging, name, 0o700); err != nil {
		return err
	}
	err = unix.Fchmodat(d.staging, name, modeOr(mode, dirMode)|0o700, 0)
	if err == nil {
		err = d.put(name, p, Growth{}, replaceFile)
	}
	if err != nil {
		return errors.Join(err, unix.Unlinkat(d.staging, name, unix.AT_REMOVEDIR))
	}
	return nil
}

// MakeLink makes p a symbolic link, in the place of a file or another link if
// one is there. target is kept as it is, and leads where it leads in a sandbox:
// it is never followed here. Errors: Invalid for an empty or over-long target;
// as Upload and Commit.
func (c *Codebase) MakeLink(p vpath.Path, target string) error {
	if err := checkTarget("make link", p); err != nil {
		return err
	}
	if target == "" || len(target) >= unix.PathMax || strings.Contains(target, "\x00") {
		return fault.New(fault.Invalid, "make link %s: the target is empty, longer than %d bytes, or holds a NUL", p, unix.PathMax-1)
	}
	name := c.stagedName()
	err := c.change(func(d dirs) error {
		if err := unix.Symlinkat(target, d.staging, name); err != nil {
			return err
		}
		if err := d.put(name, p, Growth{FileCount: 1}, replaceLink); err != nil {
			return errors.Join(err, unix.Unlinkat(d.staging, name, 0))
		}
		return nil
	})
	return wrapWrite("make link", p, err)
}
