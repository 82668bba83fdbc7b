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

// Drop forgets what the layers above the source say of exactly these paths,
// so that the view shows the source again: after applying them, or to discard
// them. A path below a directory that is deleted as a whole is taken out of
// the deletion. A directory that still holds other changes stays as the way to
// them, with the source's present mode; one that held nothing else goes, and
// so do directories above that were only the way. Frozen layers are merged into
// the delta first. Files open for writing become stale, as after Freeze.
// Errors: Exhausted, Internal.
func (s *Stack) Drop(paths ...vpath.Path) error {
	_, err := s.DropMatching(nil, nil, paths...)
	return err
}

// DropMatching drops the paths for which holds returns true, and returns the others.
// holds gets the result of Lookup. It is called while the stack is locked and must not
// use it. A nil holds is true for every path.
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
	d := dropping{s: s, aliases: s.inodes.byShown()}
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
	if err := s.squash(d.bases); err != nil {
		return kept, wrap("drop", vpath.Root, err)
	}
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
	aliases map[uint64][]uint64     // backing inodes by the number they show, at the start
	open    map[vpath.Path]bool     // directories that nothing hides below
	parents map[vpath.Path]struct{} // directories in which something was dropped
}

// dropAll drops paths, those below a directory before it, and then the
// directories that were only the way to them. It says where it failed.
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
		// Not earlier: after a crash a change without a base could not be
		// applied, while a base without a change is superseded by the next.
		if err := s.journal.AppendDeferred(journal.DropRecord(p)); err != nil {
			return err
		}
	}
	s.dirs.purge(p)
	d.parents[p.Dir()] = struct{}{}
	return d.renumber(p)
}

// renumber gives a file of the delta that came from p and was moved a number
// of its own, now that the source's file shows its number again.
func (d *dropping) renumber(p vpath.Path) error {
	s := d.s
	if len(d.aliases) == 0 {
		return nil
	}
	i, err := s.SourceInfo(p)
	if err != nil {
		return nil // nothing shows at p
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

// remove takes what the delta says of p out of it.
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

// isEmpty reports whether the delta's directory p, which merges with the
// source's, neither has nor hides anything.
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

// rebase makes a directory that still holds changes no change of its own, if
// the source has one there too.
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

// prune removes p and the directories above it from the delta where they are
// no change and the way to none.
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

// pruneOne removes the directory p from the delta if it merges, is empty and
// has its base's mode. It says whether the delta has nothing at p now.
func (d *dropping) pruneOne(p vpath.Path, base *Base) (bool, error) {
	at, err := d.at(p)
	if err != nil {
		return false, err
	}
	if at == nil { // below what the delta does not have, or has a file in place of
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
