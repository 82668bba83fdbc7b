package codebase

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// replacing says what a new file may replace. Only a symbolic link may replace a symbolic link: an
// upload to its name may be meant for the link's target.
type replacing func(p vpath.Path, before *unix.Stat_t) error

func replaceFile(p vpath.Path, before *unix.Stat_t) error {
	if before != nil && isLink(before) {
		return unix.ELOOP
	}
	return replaceLink(p, before)
}

func replaceLink(p vpath.Path, before *unix.Stat_t) error {
	if before != nil && isDir(before) {
		return errdefs.New(errdefs.Precondition, "upload %s: is a directory", p)
	}
	return nil
}

// put moves the staged entry name to p, in one step with missing parent directories. g is the
// growth of the usage, without the replaced file; h was held for it. After an error nothing has
// changed.
func (d dirs) put(name string, p vpath.Path, g SizeDelta, h *hold, may replacing) error {
	parent, missing, err := d.nearest(p)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	var before *unix.Stat_t
	if len(missing) == 0 {
		before, err = lstat(parent, p.Base())
		if errors.Is(err, unix.ENOENT) {
			before, err = nil, nil
		}
		if err == nil {
			err = may(p, before)
		}
	}
	if err == nil {
		way := SizeDelta{DirCount: int64(len(missing))}
		g = g.plus(way)
		g.add(before, -1)
		if err = d.codebase.allowLocked(p, g); err == nil {
			err = h.grow(p, way)
		}
	}
	switch {
	case err != nil:
	case len(missing) == 0:
		err = unix.Renameat(d.staging, name, parent, p.Base())
	default:
		err = d.putWithWay(name, parent, missing, p.Base())
	}
	if err == nil {
		failpoint.At("upload: placed")
		d.codebase.growLocked(g, h)
	}
	return err
}

// nearest opens the deepest existing directory above p, and returns the names of the missing ones.
func (d dirs) nearest(p vpath.Path) (fd int, missing []string, err error) {
	fd, err = safefs.OpenDir(d.files, p.Dir().Rel(), unix.O_PATH)
	if !errors.Is(err, unix.ENOENT) {
		return fd, nil, err
	}
	at, err := safefs.OpenDir(d.files, ".", unix.O_PATH)
	if err != nil {
		return -1, nil, err
	}
	for name := range p.Dir().Elements() {
		if len(missing) > 0 {
			missing = append(missing, name)
			continue
		}
		next, err := safefs.OpenDir(at, name, unix.O_PATH)
		if errors.Is(err, unix.ENOENT) {
			missing = append(missing, name)
			continue
		}
		unix.Close(at)
		if err != nil {
			return -1, nil, err
		}
		at = next
	}
	return at, missing, nil
}

// putWithWay creates the missing directories in staging, moves the staged entry name into the last
// one as base, and then moves the first one to parent.
func (d dirs) putWithWay(name string, parent int, missing []string, base string) (err error) {
	way := name + wayExt
	defer func() {
		if err != nil {
			err = errors.Join(err, safefs.RemoveTreeAt(d.staging, way))
		}
	}()
	last, err := makeDirIn(d.staging, way)
	if err != nil {
		return err
	}
	for _, dir := range missing[1:] {
		next, err := makeDirIn(last, dir)
		unix.Close(last)
		if err != nil {
			return err
		}
		last = next
	}
	defer unix.Close(last)
	if err := unix.Renameat(d.staging, name, last, base); err != nil {
		return err
	}
	failpoint.At("upload: way made")
	err = unix.Renameat2(d.staging, way, parent, missing[0], unix.RENAME_NOREPLACE)
	if err != nil {
		err = errors.Join(err, unix.Renameat(last, base, d.staging, name))
	}
	return err
}

// wayExt is the suffix of the staging name of the directories for a staged entry.
const wayExt = ".way"

// makeDirIn creates the directory name in dir and opens it.
func makeDirIn(dir int, name string) (fd int, err error) {
	if err := unix.Mkdirat(dir, name, dirMode); err != nil {
		return -1, err
	}
	fd, err = safefs.OpenDir(dir, name, unix.O_PATH)
	if err != nil {
		return -1, err
	}
	if err := unix.Chmod(safefs.ProcPath(fd), dirMode); err != nil { // independent of the umask
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// MakeDir creates the directory p and its missing parents. An existing one gets the mode, unless
// that is 0. Only the permission bits of mode count; 0 is 0755; the owner always gets rwx. Errors:
// those of Upload and Commit.
func (c *Codebase) MakeDir(p vpath.Path, mode uint32) error {
	if !p.IsRoot() {
		if err := checkTarget("make directory", p); err != nil {
			return err
		}
	}
	h, err := c.hold(p, SizeDelta{})
	if err != nil {
		return err
	}
	defer h.release()
	name := c.stagedName()
	err = c.change(func(d dirs) error { return d.makeDir(name, p, mode, h) })
	return wrapWrite("make directory", p, err)
}

func (d dirs) makeDir(name string, p vpath.Path, mode uint32, h *hold) error {
	fd, err := safefs.OpenDir(d.files, p.Rel(), unix.O_PATH)
	if err == nil {
		defer unix.Close(fd)
		if mode&0o777 != 0 {
			err = unix.Chmod(safefs.ProcPath(fd), mode&0o777|0o700)
			d.codebase.growLocked(SizeDelta{}, nil)
		}
		return err
	}
	if !errors.Is(err, unix.ENOENT) {
		return err
	}
	made := SizeDelta{DirCount: 1}
	if err := h.grow(p, made); err != nil {
		return err
	}
	if err := unix.Mkdirat(d.staging, name, 0o700); err != nil {
		return err
	}
	err = unix.Fchmodat(d.staging, name, modeOr(mode, dirMode)|0o700, 0)
	if err == nil {
		err = d.put(name, p, made, h, replaceFile)
	}
	if err != nil {
		return errors.Join(err, unix.Unlinkat(d.staging, name, unix.AT_REMOVEDIR))
	}
	return nil
}

// MakeLink creates the symbolic link p; it replaces a file or another link. target is stored
// unchanged and resolved only in a sandbox. Errors: Invalid for an empty or too long target; those
// of Upload and Commit.
func (c *Codebase) MakeLink(p vpath.Path, target string) error {
	if err := checkTarget("make link", p); err != nil {
		return err
	}
	if target == "" || len(target) >= unix.PathMax || strings.Contains(target, "\x00") {
		return errdefs.New(errdefs.Invalid, "make link %s: the target is empty, longer than %d bytes, or contains a NUL", p, unix.PathMax-1)
	}
	h, err := c.hold(p, SizeDelta{FileCount: 1})
	if err != nil {
		return err
	}
	defer h.release()
	name := c.stagedName()
	err = c.change(func(d dirs) error {
		if err := unix.Symlinkat(target, d.staging, name); err != nil {
			return err
		}
		if err := d.put(name, p, SizeDelta{FileCount: 1}, h, replaceLink); err != nil {
			return errors.Join(err, unix.Unlinkat(d.staging, name, 0))
		}
		return nil
	})
	return wrapWrite("make link", p, err)
}
