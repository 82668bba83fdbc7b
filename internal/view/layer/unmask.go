package layer

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// unmask makes sure that no ancestor of p hides p in the delta: it replaces the
// whiteout or opaque marker of a directory by whiteouts of single names.
func (d *dropping) unmask(p vpath.Path) error {
	if p.IsOwn() {
		return nil // the view hides the source's entry there
	}
	for a := range p.Ancestors() {
		if a.IsRoot() || d.open[a] {
			continue
		}
		more, err := d.unmaskOne(a)
		if err != nil || !more {
			return err
		}
		d.open[a] = true
	}
	return nil
}

// unmaskOne makes the directory a merge with the source's, if the delta has a or deletes
// it. It reports whether the delta has a afterwards.
func (d *dropping) unmaskOne(a vpath.Path) (bool, error) {
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
	opaque, err := exists(fd, nameenc.OpaqueMarker)
	if err != nil {
		return false, err
	}
	if opaque || hidden {
		err = d.expose(a, at, fd)
	}
	d.s.dirs.purge(a)
	return true, err
}

// at is the place of a path in the delta.
type at struct {
	dir    int // of the parent; the caller closes it
	name   string
	stored string
	there  bool
	st     stat // if there
}

// at returns the place of p, or nil if the delta does not have the parent directory.
func (d *dropping) at(p vpath.Path) (*at, error) {
	dir, err := openDirAt(d.s.layers[top].root, nameenc.Path(p.Dir()))
	if err != nil {
		return nil, orAbsent(err)
	}
	a := &at{dir: dir, name: p.Base()}
	a.stored, _ = nameenc.Entry(a.name)
	a.st, err = statAt(dir, a.stored)
	if err != nil && err != unix.ENOENT {
		unix.Close(dir)
		return nil, err
	}
	a.there = err == nil
	return a, nil
}

// makeOpaque makes an opaque directory beside the whiteout of a, which hides the same
// entries. It returns false if the source has no directory there.
func (d *dropping) makeOpaque(a vpath.Path, at *at) (bool, error) {
	i, err := d.s.SourceInfo(a)
	if err != nil || !i.IsDir() || i.Mounted {
		return false, nil
	}
	if err := d.s.quota.addInodes(1); err != nil {
		return false, err
	}
	pl := &place{dir: at.dir, path: a, name: at.name, stored: at.stored}
	_, pl.hashed = nameenc.Entry(at.name)
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

// expose makes the opaque directory a, open as fd, merge with the source's. Entries that
// the sandbox deleted get whiteouts. Entries that it never saw (hidden by policy, or newer)
// show again.
func (d *dropping) expose(a vpath.Path, at *at, fd int) error {
	source, err := d.s.sourceDirAt(a)
	switch {
	case err == nil:
		err = d.hideEach(a, source, fd)
		unix.Close(source)
	case isAbsent(err):
		err = nil // the source has no such directory
	}
	if err != nil {
		return err
	}
	if err := dropWhiteout(at.dir, at.name); err != nil {
		return err
	}
	return safefs.Unlink(fd, nameenc.OpaqueMarker)
}

// hideEach makes whiteouts in the delta's directory a, open as fd, for the source's entries
// that the sandbox removed. It makes the directories of the delta in a opaque.
func (d *dropping) hideEach(a vpath.Path, source, fd int) error {
	return safefs.ReadNames(source, func(raw []byte, _ uint32, _ uint64) error {
		name := string(raw)
		stored, _ := nameenc.Entry(name)
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
