package layer

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/vpath"
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
	_, err := s.DropIf(nil, paths...)
	return err
}

// DropIf is Drop of those paths for which holds says yes to what Lookup
// answers there, and returns the others. holds is called while nothing in the
// stack can change; it must not use the stack. Nil is a yes to everything.
func (s *Stack) DropIf(holds func(vpath.Path, Info, error) bool, paths ...vpath.Path) (kept []vpath.Path, err error) {
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
	if d.bases, err = s.journal.bases(); err != nil {
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
	if err := s.squash(d.bases); err != nil {
		return kept, wrap("drop", vpath.Root, err)
	}
	for _, p := range paths {
		if err := d.drop(p); err != nil {
			return kept, wrap("drop", p, err)
		}
	}
	return kept, nil
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
	aliases map[uint64][]uint64 // backing inodes by the number they show, at the start
}

func (d *dropping) drop(p vpath.Path) error {
	s := d.s
	delete(d.bases, p)
	delete(s.covered, p)
	s.views.purge(p)
	if p.IsRoot() {
		s.rootTouched = false
		return s.journal.append(record{kind: recordDrop, path: p})
	}
	if err := d.uncover(p); err != nil {
		return err
	}
	if err := d.remove(p); err != nil {
		return err
	}
	if _, rebased := d.bases[p]; !rebased {
		// Not earlier: after a crash a change without a base could not be
		// applied, while a base without a change is superseded by the next.
		if err := s.journal.append(record{kind: recordDrop, path: p}); err != nil {
			return err
		}
	}
	s.views.purge(p)
	if err := d.renumber(p); err != nil {
		return err
	}
	return d.prune(p.Dir())
}

// renumber gives a file of the delta that came from p and was moved a number
// of its own, now that the source's file shows its number again.
func (d *dropping) renumber(p vpath.Path) error {
	s := d.s
	i, err := s.SourceInfo(p)
	if err != nil {
		return nil // nothing shows at p
	}
	for _, ino := range d.aliases[i.Ino] {
		alias, ok := s.inodes.unalias(ino, i.Ino)
		if !ok {
			continue
		}
		if err := s.journal.append(record{kind: recordAlias, ino: ino, alias: alias}); err != nil {
			return err
		}
	}
	return nil
}

// uncover makes sure that no ancestor of p hides p in the delta: what is
// hidden as a whole becomes hidden name by name.
func (d *dropping) uncover(p vpath.Path) error {
	for a := range p.Ancestors() {
		if a.IsRoot() {
			continue
		}
		more, err := d.uncoverAt(a)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// uncoverAt makes the directory a, if the delta has it or deletes it, merge
// with the source's. It says whether the delta has it now.
func (d *dropping) uncoverAt(a vpath.Path) (bool, error) {
	at, err := d.at(a)
	if err != nil || at == nil {
		return false, err
	}
	defer unix.Close(at.dir)
	hidden, err := hasWhiteout(at.dir, at.name)
	if err != nil {
		return false, err
	}
	switch {
	case at.there && !at.st.isDir():
		return false, nil
	case !at.there && !hidden:
		return false, nil
	case !at.there:
		if isDir, err := d.makeOpaque(a, at); err != nil || !isDir {
			return false, err
		}
	}
	fd, err := openDir(at.dir, at.stored)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	opaque, err := exists(fd, opaqueMarker)
	if err != nil {
		return false, err
	}
	if opaque || hidden {
		err = d.expose(a, at, fd)
	}
	d.s.views.purge(a)
	return true, err
}

// at is a path as the delta stores it.
type at struct {
	dir    int // of the parent, to be closed
	name   string
	stored string
	there  bool
	st     stat // if there
}

// at finds p in the delta; nil if the delta has no directory for it.
func (d *dropping) at(p vpath.Path) (*at, error) {
	dir, err := openDirAt(d.s.layers[top].root, storedPath(p.Dir()))
	if err != nil {
		return nil, orAbsent(err)
	}
	a := &at{dir: dir, name: p.Base()}
	a.stored, _ = storedName(a.name)
	a.st, err = statAt(dir, a.stored)
	if err != nil && err != unix.ENOENT {
		unix.Close(dir)
		return nil, err
	}
	a.there = err == nil
	return a, nil
}

// makeOpaque puts an opaque directory beside the whiteout of a, which hides
// the same. It says no if there is no directory to hide.
func (d *dropping) makeOpaque(a vpath.Path, at *at) (bool, error) {
	i, err := d.s.SourceInfo(a)
	if err != nil || !i.IsDir() || i.Mounted {
		return false, nil
	}
	if err := d.s.quota.addInodes(1); err != nil {
		return false, err
	}
	pl := &place{dir: at.dir, path: a, name: at.name, stored: at.stored}
	_, pl.hashed = storedName(at.name)
	if err = pl.before(); err == nil {
		err = d.s.mkdirOpaque(pl, i.Mode&modeMask)
	}
	if err != nil {
		d.s.quota.dropInodes(1)
		return false, err
	}
	st, err := statAt(at.dir, at.stored)
	if err == nil {
		d.s.quota.settle(&st)
	}
	return err == nil, err
}

// expose lets the opaque directory a, opened as fd, merge with the source's.
// What the sandbox deleted there stays hidden name by name; what it never
// changed (hidden by policy, or newer) shows again.
func (d *dropping) expose(a vpath.Path, at *at, fd int) error {
	source, err := openDirAt(d.s.sourceRoot, a.Rel())
	switch {
	case err == nil:
		err = d.hideEach(a, source, fd)
		unix.Close(source)
	case isAbsent(err):
		err = nil // nothing there to show through
	}
	if err != nil {
		return err
	}
	if err := dropWhiteout(at.dir, at.name); err != nil {
		return err
	}
	return unlinkAt(fd, opaqueMarker)
}

// hideEach hides in the delta directory fd, which is a, what the sandbox
// removed of the source's; what the delta has as a directory stays closed off.
func (d *dropping) hideEach(a vpath.Path, source, fd int) error {
	return readNames(source, func(raw []byte, _ uint32, _ uint64) error {
		name := string(raw)
		stored, _ := storedName(name)
		st, err := statAt(fd, stored)
		if err == nil && st.isDir() {
			return makeMarker(fd, stored)
		}
		if _, recorded := d.bases[a.Child(name)]; recorded && err == unix.ENOENT {
			return d.s.makeWhiteout(fd, name)
		}
		return orAbsent(err)
	})
}

// remove takes what the delta says of p out of it.
func (d *dropping) remove(p vpath.Path) error {
	s := d.s
	if _, err := d.uncoverAt(p); err != nil {
		return err
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
		if c.kind == storedEntry {
			return false, nil
		}
	}
	source, err := openDirAt(d.s.sourceRoot, p.Rel())
	if err != nil {
		return isAbsent(err), orAbsent(err)
	}
	defer unix.Close(source)
	for _, c := range names { // a whiteout over nothing hides nothing
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
	return s.journal.append(baseRecord(p, baseOf(&now)))
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
		if err := d.s.journal.append(record{kind: recordDrop, path: p}); err != nil {
			return err
		}
		d.s.views.purge(p)
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
