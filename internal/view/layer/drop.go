package layer

import (
	"errors"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/journal"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// Drop removes the changes at exactly these paths, so that the view shows the source again:
// after applying them, or to discard them. If a path is below a deleted directory, the rest
// of the directory stays deleted. A directory that contains other changes stays, with the
// source's present mode. Directories that contain no other change are removed, also those
// above the paths. Drop first merges frozen layers into the delta. Files open for writing
// become stale, as after Freeze. Errors: Exhausted, Internal.
func (s *Stack) Drop(paths ...vpath.Path) error {
	_, err := s.DropMatching(nil, nil, paths...)
	return err
}

// DropMatching drops the paths for which holds returns true, and returns the others. holds
// gets the path and the result of Lookup. DropMatching calls it with the stack locked, so
// holds must not use the stack. A nil holds is true for every path.
//
// The other paths have changed since they were applied. If the source still is what the
// apply made of it (applied; an Absent Base: the apply removed it), DropMatching
// durably records that as their base. An entry that the apply made, and that the
// sandbox had removed before, stays hidden.
func (s *Stack) DropMatching(holds func(vpath.Path, Info, error) bool, applied map[vpath.Path]Base, paths ...vpath.Path) (kept []vpath.Path, err error) {
	if err := s.writable(); err != nil {
		return nil, wrap("drop", vpath.Root, err)
	}
	defer s.sweep()
	s.ns.Lock()
	defer s.ns.Unlock()
	s.writers.Lock()
	s.gen.Add(1)
	s.writers.Unlock()
	s.links.forget()
	d := dropping{s: s}
	if d.bases, err = s.journal.Bases(); err != nil {
		return nil, wrap("drop", vpath.Root, err)
	}
	paths = slices.Clone(paths)
	slices.SortFunc(paths, func(a, b vpath.Path) int { return comparePaths(b, a) })
	paths = slices.Compact(paths)
	if holds != nil {
		paths = slices.DeleteFunc(paths, func(p vpath.Path) bool {
			i, err := s.lookupLocked(p)
			no := !holds(p, i, wrap("stat", p, err))
			if no {
				kept = append(kept, p)
			}
			return no
		})
	}
	if at, err := d.rebaseApplied(kept, applied); err != nil {
		return kept, wrap("drop", at, err)
	}
	if err := s.squash(d.bases, paths); err != nil {
		return kept, wrap("drop", vpath.Root, err)
	}
	d.aliases = s.inodes.byShown()
	at, err := d.dropAll(paths)
	return kept, wrap("drop", at, err)
}

func (s *Stack) lookupLocked(p vpath.Path) (Info, error) {
	if p.IsRoot() {
		return s.rootInfo()
	}
	return s.lookup(p)
}

// dropping is one Drop in progress; ns is held exclusively.
type dropping struct {
	s       *Stack
	bases   map[vpath.Path]Base
	aliases map[uint64][]uint64     // backing inodes by the number that they showed at the start
	open    map[vpath.Path]bool     // directories below which nothing is hidden
	parents map[vpath.Path]struct{} // directories in which something was dropped
}

// dropAll drops paths, children before their directory, and then the directories that
// contain no other change. at is the path that failed.
func (d *dropping) dropAll(paths []vpath.Path) (at vpath.Path, err error) {
	d.open, d.parents = map[vpath.Path]bool{}, map[vpath.Path]struct{}{}
	d.s.journal.Defer()
	defer func() { err = errors.Join(err, d.s.journal.FlushDeferred()) }()
	for _, p := range paths {
		if err := d.drop(p); err != nil {
			return p, err
		}
	}
	deepestFirst := func(a, b vpath.Path) int { return comparePaths(b, a) }
	for _, p := range slices.SortedFunc(maps.Keys(d.parents), deepestFirst) {
		if err := d.prune(p); err != nil {
			return p, err
		}
	}
	return vpath.Root, nil
}

func (d *dropping) drop(p vpath.Path) error {
	s := d.s
	delete(d.bases, p)
	delete(s.covered, p)
	s.dirs.purge(p)
	if p.IsRoot() {
		s.rootTouched = false
		return s.journal.AppendDeferred(journal.DropRecord(p))
	}
	if err := d.unmask(p); err != nil {
		return err
	}
	if err := d.remove(p); err != nil {
		return err
	}
	if _, rebased := d.bases[p]; !rebased {
		// Only now: after a crash, a change without a base could not be applied, while the
		// next change supersedes a base without a change.
		if err := s.journal.AppendDeferred(journal.DropRecord(p)); err != nil {
			return err
		}
	}
	s.dirs.purge(p)
	d.parents[p.Dir()] = struct{}{}
	return d.renumber(p)
}

// renumber gives a new inode number to a file of the delta that came from p and was moved,
// because the source's file shows its own number again.
func (d *dropping) renumber(p vpath.Path) error {
	s := d.s
	if len(d.aliases) == 0 {
		return nil
	}
	i, err := s.SourceInfo(p)
	if err != nil {
		return nil // the view has nothing at p
	}
	for _, ino := range d.aliases[i.Ino] {
		alias, ok := s.inodes.unalias(ino, i.Ino)
		if !ok {
			continue
		}
		if err := s.journal.AppendDeferred(journal.AliasRecord(ino, alias)); err != nil {
			return err
		}
	}
	return nil
}

// remove removes the entry or whiteout of p from the delta.
func (d *dropping) remove(p vpath.Path) error {
	s := d.s
	if !p.IsOwn() {
		if _, err := d.unmaskOne(p); err != nil {
			return err
		}
	}
	at, err := d.at(p)
	if err != nil || at == nil {
		return err
	}
	defer unix.Close(at.dir)
	if err := dropWhiteout(at.dir, at.name); err != nil || !at.there {
		return err
	}
	if !at.st.isDir() {
		return s.removeStored(at.entry(), at.name)
	}
	empty, err := d.isEmpty(p, at)
	if err != nil {
		return err
	}
	if empty {
		return s.removeDir(at.entry(), at.name)
	}
	return d.rebase(p, at)
}

func (a *at) entry() entry {
	return entry{part: part{layer: top, fd: a.dir}, stored: a.stored, st: a.st}
}

// isEmpty reports whether the delta's directory p, which merges with the source's, has no
// entries and hides nothing.
func (d *dropping) isEmpty(p vpath.Path, at *at) (bool, error) {
	fd, err := openDir(at.dir, at.stored)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	names, err := readStored(fd)
	if err != nil || len(names) == 0 {
		return err == nil, err
	}
	for _, c := range names {
		if c.kind == nameenc.KindEntry {
			return false, nil
		}
	}
	source, err := d.s.sourceDirAt(p)
	if err != nil {
		return isAbsent(err), orAbsent(err)
	}
	defer unix.Close(source)
	for _, c := range names { // a whiteout over nothing hides nothing
		if vpath.IsOwnName(c.name) {
			continue
		}
		if there, err := exists(source, c.name); err != nil || there {
			return false, err
		}
	}
	return true, nil
}

// rebase gives a directory that contains changes the attributes of the source's directory,
// so that the directory itself is no longer a change.
func (d *dropping) rebase(p vpath.Path, at *at) error {
	s := d.s
	var now stat
	err := s.atSource(p, func(e entry) error {
		now = e.st
		return nil
	})
	if isAbsent(err) || err == nil && !now.isDir() {
		return nil
	}
	if err != nil {
		return err
	}
	if err := unix.Fchmodat(at.dir, at.stored, now.mode&modeMask, 0); err != nil {
		return err
	}
	d.bases[p] = baseOf(&now)
	return s.journal.AppendDeferred(journal.BaseRecord(p, baseOf(&now)))
}

// prune removes p and the directories above it from the delta if they neither are changes
// nor contain any.
func (d *dropping) prune(p vpath.Path) error {
	for ; !p.IsRoot(); p = p.Dir() {
		base, ok := d.bases[p]
		if !ok || base.Mode&typeMask != unix.S_IFDIR {
			return nil
		}
		if gone, err := d.pruneOne(p, &base); err != nil || !gone {
			return err
		}
		delete(d.bases, p)
		if err := d.s.journal.AppendDeferred(journal.DropRecord(p)); err != nil {
			return err
		}
		d.s.dirs.purge(p)
		if err := d.renumber(p); err != nil {
			return err
		}
	}
	return nil
}

// pruneOne removes the directory p from the delta if it merges, is empty and has its base's
// mode. It reports whether the delta has nothing at p afterwards.
func (d *dropping) pruneOne(p vpath.Path, base *Base) (bool, error) {
	at, err := d.at(p)
	if err != nil {
		return false, err
	}
	if at == nil { // the delta does not have the parent directory
		_, err := d.s.lookup(p)
		return err == nil, nil
	}
	defer unix.Close(at.dir)
	if !at.there || !at.st.isDir() || at.st.mode&modeMask != base.Mode&modeMask {
		return false, nil
	}
	closed, err := isClosed(at.dir, at.name, at.stored)
	if err != nil || closed {
		return false, err
	}
	if empty, err := d.isEmpty(p, at); err != nil || !empty {
		return false, err
	}
	return true, d.s.removeDir(at.entry(), at.name)
}
