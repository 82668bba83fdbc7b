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
// so do directories above that were only the way. Files open for writing
// become stale, as after Freeze. Errors: Internal.
func (s *Stack) Drop(paths ...vpath.Path) error {
	if err := s.writable(); err != nil {
		return wrap("drop", vpath.Root, err)
	}
	defer s.sweep()
	s.ns.Lock()
	defer s.ns.Unlock()
	s.writers.Lock()
	s.gen.Add(1)
	s.writers.Unlock()
	d := dropping{s: s}
	var err error
	if d.bases, err = s.journal.bases(); err != nil {
		return wrap("drop", vpath.Root, err)
	}
	paths = slices.Clone(paths)
	slices.SortFunc(paths, func(a, b vpath.Path) int { return comparePaths(b, a) })
	for _, p := range slices.Compact(paths) {
		if err := d.drop(p); err != nil {
			return wrap("drop", p, err)
		}
	}
	return nil
}

// DropAll forgets everything: the view is the source again. Errors: Internal.
func (s *Stack) DropAll() error {
	if err := s.writable(); err != nil {
		return wrap("drop", vpath.Root, err)
	}
	defer s.sweep()
	s.ns.Lock()
	defer s.ns.Unlock()
	s.writers.Lock()
	defer s.writers.Unlock()
	s.gen.Add(1)
	s.views.purge(vpath.Root)
	return wrap("drop", vpath.Root, s.dropAll())
}

func (s *Stack) dropAll() error {
	for _, name := range []string{"top", "frozen"} {
		gone := s.temp()
		err := unix.Renameat2(s.home, name, s.work, gone, unix.RENAME_NOREPLACE)
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return err
		}
		s.garbageMu.Lock()
		s.garbage = append(s.garbage, gone)
		s.garbageMu.Unlock()
	}
	fresh, err := s.newTop(nil)
	if err != nil {
		return err
	}
	for _, l := range s.layers[:s.bottom()] {
		unix.Close(l.root)
	}
	s.layers = []*layer{fresh, s.layers[s.bottom()]}
	s.rootTouched = false
	return s.journal.clear()
}

// dropping is one Drop in progress; ns is held exclusively.
type dropping struct {
	s     *Stack
	bases map[vpath.Path]Base
}

func (d *dropping) drop(p vpath.Path) error {
	s := d.s
	delete(d.bases, p)
	if err := s.journal.append(record{kind: recordDrop, path: p}); err != nil {
		return err
	}
	s.views.purge(p)
	if p.IsRoot() {
		s.rootTouched = false
		return nil
	}
	for n := s.bottom() - 1; n >= top; n-- {
		if err := d.uncover(n, p); err != nil {
			return err
		}
		if err := d.dropFrom(n, p); err != nil {
			return err
		}
	}
	s.views.purge(p)
	return d.prune(p.Dir())
}

// uncover makes sure that in layer n no ancestor of p hides p: what is hidden
// as a whole becomes hidden name by name.
func (d *dropping) uncover(n int, p vpath.Path) error {
	for a := range p.Ancestors() {
		if a.IsRoot() {
			continue
		}
		more, err := d.uncoverAt(n, a)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// uncoverAt makes the directory a of layer n, if the layer has it or deletes
// it, merge with what is below. It says whether the layer has it now.
func (d *dropping) uncoverAt(n int, a vpath.Path) (bool, error) {
	at, err := d.at(n, a)
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
		if isDir, err := d.makeOpaque(n, a, at); err != nil || !isDir {
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
		err = d.expose(n, a, at, fd)
	}
	d.s.views.purge(a)
	return true, err
}

// at is a path as one delta layer stores it.
type at struct {
	dir    int // of the parent, to be closed
	name   string
	stored string
	there  bool
	st     stat // if there
}

// at finds p in layer n; nil if the layer has no directory for it.
func (d *dropping) at(n int, p vpath.Path) (*at, error) {
	dir, err := openDirAt(d.s.layers[n].root, storedPath(p.Dir()))
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
func (d *dropping) makeOpaque(n int, a vpath.Path, at *at) (bool, error) {
	v, err := d.s.viewBelow(a, n+1)
	if err != nil {
		return false, orAbsent(err)
	}
	defer v.closeParts()
	if v.sealed {
		return false, nil
	}
	st, err := statFd(v.parts[0].fd)
	if err != nil {
		return false, err
	}
	pl := &place{dir: at.dir, path: a, name: at.name, stored: at.stored}
	_, pl.hashed = storedName(at.name)
	if err := pl.before(); err != nil {
		return false, err
	}
	if err := d.s.quota.addInodes(1); err != nil {
		return false, err
	}
	return true, d.s.mkdirOpaque(pl, st.mode&modeMask)
}

// expose lets the opaque directory a of layer n, opened as fd, merge with what
// is below. What the sandbox deleted there stays hidden name by name; what it
// never changed (hidden by policy, or newer) shows again.
func (d *dropping) expose(n int, a vpath.Path, at *at, fd int) error {
	s := d.s
	v, err := s.viewBelow(a, n+1)
	switch {
	case err == nil:
		err = d.hideEach(a, v, fd)
		v.closeParts()
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

// hideEach hides in the delta directory fd, which is a, each name of v that
// it has not itself; what it has as a directory stays closed off.
func (d *dropping) hideEach(a vpath.Path, v *view, fd int) error {
	var children []child
	if err := d.s.list(v, func(c child) { children = append(children, c) }); err != nil {
		return err
	}
	for _, c := range children {
		stored, _ := storedName(c.name)
		st, err := statAt(fd, stored)
		switch {
		case err == nil && st.isDir():
			err = makeMarker(fd, stored)
		case err == unix.ENOENT && d.deleted(a.Child(c.name), c):
			err = makeWhiteout(fd, c.name)
		case err == unix.ENOENT:
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// deleted reports whether the sandbox itself removed c, which is not there.
func (d *dropping) deleted(p vpath.Path, c child) bool {
	_, recorded := d.bases[p]
	return recorded || d.s.layers[c.layer].origin != Source
}

// dropFrom removes what layer n says of p.
func (d *dropping) dropFrom(n int, p vpath.Path) error {
	s := d.s
	if _, err := d.uncoverAt(n, p); err != nil {
		return err
	}
	at, err := d.at(n, p)
	if err != nil || at == nil {
		return err
	}
	defer unix.Close(at.dir)
	if err := dropWhiteout(at.dir, at.name); err != nil || !at.there {
		return err
	}
	e := entry{part{layer: n, fd: at.dir}, at.stored, at.st}
	if !at.st.isDir() {
		return s.removeStored(e, at.name)
	}
	empty, err := d.isEmpty(at)
	if err != nil {
		return err
	}
	if empty {
		return s.removeDir(e, at.name)
	}
	return d.rebase(p, at)
}

// isEmpty reports whether a delta directory neither has nor hides anything.
func (d *dropping) isEmpty(at *at) (bool, error) {
	fd, err := openDir(at.dir, at.stored)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	names, err := readStored(fd)
	return len(names) == 0, err
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
		kept := false
		for n := top; n < d.s.bottom(); n++ {
			gone, err := d.pruneAt(n, p, &base)
			if err != nil {
				return err
			}
			kept = kept || !gone
		}
		if kept {
			return nil
		}
		delete(d.bases, p)
		if err := d.s.journal.append(record{kind: recordDrop, path: p}); err != nil {
			return err
		}
		d.s.views.purge(p)
	}
	return nil
}

// pruneAt removes the directory p from layer n if it merges, is empty and has
// its base's mode. It says whether the layer has nothing at p now.
func (d *dropping) pruneAt(n int, p vpath.Path, base *Base) (bool, error) {
	at, err := d.at(n, p)
	if err != nil {
		return false, err
	}
	if at == nil {
		return true, nil
	}
	defer unix.Close(at.dir)
	hidden, err := hasWhiteout(at.dir, at.name)
	if err != nil || hidden {
		return false, err
	}
	if !at.there {
		return true, nil
	}
	if !at.st.isDir() || at.st.mode&modeMask != base.Mode&modeMask {
		return false, nil
	}
	err = unix.Unlinkat(at.dir, at.stored, unix.AT_REMOVEDIR)
	if err == unix.ENOTEMPTY || err == unix.EEXIST {
		return false, nil // a marker, or content
	}
	if err != nil {
		return false, err
	}
	d.s.freed(&at.st)
	return true, dropNameBeside(at.dir, at.name)
}

// viewBelow is the directory p as the layers from number from on show it. It
// is not cached; the caller calls closeParts.
func (s *Stack) viewBelow(p vpath.Path, from int) (*view, error) {
	v, err := s.rootView()
	if err != nil {
		return nil, err
	}
	cut := 0
	for cut < len(v.parts) && v.parts[cut].layer < from {
		unix.Close(v.parts[cut].fd)
		cut++
	}
	v.parts = v.parts[cut:]
	at := vpath.Root
	for name := range p.Elements() {
		at = at.Child(name)
		below, err := s.descend(v, at)
		v.closeParts()
		if err != nil {
			return nil, err
		}
		v = below
	}
	return v, nil
}
