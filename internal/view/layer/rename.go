package layer

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/journal"
)

// RenameOptions has the flags of renameat2(2), and the bounds of what a directory's rename
// may copy.
type RenameOptions struct {
	NoReplace bool // Exists if the new name is taken
	Exchange  bool // swap the two, which must both exist

	// Visible reports whether an entry below a moved directory moves (called with the old
	// path), and whether an entry below a replaced directory counts as content (called with
	// the new path). Nil means all. Entries that do not move stay in the source. If such an
	// entry is in the delta, the rename fails with EXDEV.
	Visible func(vpath.Path) bool

	// Bounds of what a directory's rename copies up from lower layers. Beyond them it fails
	// with EXDEV. Zero means DefaultRenameEntries and DefaultRenameBytes.
	MaxEntries int
	MaxBytes   int64

	KeepReplaced bool // return the replaced file as an Orphan
}

// The default bounds: such a copy takes about a second.
const (
	DefaultRenameEntries = 2000
	DefaultRenameBytes   = 256 << 20
)

// Rename moves old to p. It first copies up everything below a directory, which does not
// change the view. The move itself is one rename(2) in the delta, so that a crash leaves
// everything at the old path or everything at the new one. Errors: NotFound, Exists,
// Precondition (ENOTDIR, EISDIR, ENOTEMPTY, EXDEV), Invalid (into itself), Unavailable
// (EBUSY), Denied, Exhausted.
func (s *Stack) Rename(old, p vpath.Path, o RenameOptions) (*Orphan, error) {
	orphan, err := s.rename(old, p, o)
	return orphan, wrap("rename", old, err)
}

func (s *Stack) rename(old, p vpath.Path, o RenameOptions) (*Orphan, error) {
	if err := s.writable(); err != nil {
		return nil, err
	}
	switch {
	case old.IsRoot() || p.IsRoot():
		return nil, unix.EBUSY
	case old == p:
		return nil, s.renameSame(old, o)
	case p.Within(old):
		return nil, unix.EINVAL
	case o.Exchange && old.Within(p):
		return nil, unix.EINVAL
	case s.containsMountPoint(old), s.containsMountPoint(p), s.containsBusy(old), s.containsBusy(p):
		return nil, unix.EBUSY
	}
	for try := range tries {
		orphan, err := s.renameOnce(old, p, &o, try > 0)
		switch err {
		case errNotInTop:
			err = s.bringUpBoth(old, p, &o)
		case errLinked, errPinned:
			err = s.copyUp(p, -1)
		default:
			return orphan, err
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, unix.EBUSY
}

func (s *Stack) renameSame(p vpath.Path, o RenameOptions) error {
	_, err := s.Lookup(p)
	if err == nil && o.NoReplace {
		return unix.EEXIST
	}
	return err
}

// errLinked means that the replaced file must be copied up first.
var errLinked = errors.New("replaced file has other names in a frozen layer")

// renameOnce does the move under the lock. It returns errNotInTop if an entry must be
// copied up first; for a directory always, unless broughtUp is set.
func (s *Stack) renameOnce(old, p vpath.Path, o *RenameOptions, broughtUp bool) (*Orphan, error) {
	defer s.sweep()
	s.ns.Lock()
	defer s.ns.Unlock()
	m := &move{s: s, old: old, path: p, o: o, broughtUp: broughtUp}
	defer m.release()
	if err := m.locate(); err != nil {
		return nil, err
	}
	if m.from.st.ino == m.to.st.ino && m.exists && !m.from.st.isDir() && m.to.part.layer == top {
		return nil, nil // two names of one file: rename(2) does nothing
	}
	m.noteLinks()
	if o.Exchange {
		return nil, m.exchange()
	}
	return m.replace()
}

// noteLinks says which names of files with several names move.
func (m *move) noteLinks() {
	linked := m.from.st.nlink > 1 || m.exists && m.to.st.nlink > 1
	if m.from.st.isDir() || m.exists && m.to.st.isDir() {
		m.s.links.moveDirs(m.old, m.path)
		linked = !m.from.st.isDir() || m.o.Exchange && !m.to.st.isDir()
	}
	m.s.links.change(linked, m.old, m.path)
}

// move is one rename in progress; ns is held exclusively.
type move struct {
	s         *Stack
	old, path vpath.Path
	o         *RenameOptions
	broughtUp bool // bringUp was called

	dirs   []*mergedDir
	from   entry // in the delta
	fromV  *mergedDir
	to     entry // if exists
	toV    *mergedDir
	exists bool
}

func (m *move) release() {
	for _, v := range m.dirs {
		m.s.dirs.release(v)
	}
}

func (m *move) hold(v *mergedDir) *mergedDir {
	m.dirs = append(m.dirs, v)
	return v
}

// locate finds both paths and makes the checks of rename(2).
func (m *move) locate() error {
	s := m.s
	v, from, err := s.locate(m.old)
	if err != nil {
		return err
	}
	m.fromV, m.from = m.hold(v), from
	if err := s.mayRemove(v, m.old.Base()); err != nil {
		return err
	}
	if from.part.layer != top || m.from.st.isDir() && !m.broughtUp {
		return errNotInTop
	}
	if len(vpath.PlainName(m.path.Base())) > vpath.NameMax {
		return unix.ENAMETOOLONG
	}
	if v, err = s.mergedDir(m.path.Dir()); err != nil {
		return err
	}
	m.toV = m.hold(v)
	if v.sealed {
		return unix.EROFS
	}
	m.to, err = s.find(v, m.path.Base(), top)
	if err != nil && err != unix.ENOENT {
		return err
	}
	m.exists = err == nil
	if err := s.mayRemove(v, m.path.Base()); err != nil {
		return err
	}
	return m.check()
}

func (m *move) check() error {
	if m.o.Exchange {
		return m.checkExchange()
	}
	switch {
	case !m.exists:
		return nil
	case m.o.NoReplace:
		return unix.EEXIST
	case m.to.st.mounted && m.to.part.origin == Source:
		return unix.EBUSY
	case m.from.st.isDir() && !m.to.st.isDir():
		return unix.ENOTDIR
	case !m.from.st.isDir() && m.to.st.isDir():
		return unix.EISDIR
	case m.to.isLinkedFrozen():
		return errLinked
	}
	return nil
}

func (m *move) checkExchange() error {
	switch {
	case !m.exists:
		return unix.ENOENT
	case m.to.part.layer != top, m.to.st.isDir() && !m.broughtUp:
		return errNotInTop
	}
	return m.checkMoves(m.path, &m.to.st)
}

// checkMoves makes sure that everything that moves with the directory p is in the delta,
// and nothing else.
func (m *move) checkMoves(p vpath.Path, st *stat) error {
	if !st.isDir() {
		return nil
	}
	todo, err := m.s.lowerEntries(p, m.o)
	if err == nil && len(todo) > 0 {
		return errNotInTop
	}
	return err
}

// exchange swaps two entries of the delta in one rename.
func (m *move) exchange() error {
	if err := m.checkMoves(m.old, &m.from.st); err != nil {
		return err
	}
	for _, e := range []entry{m.from, m.to} {
		if err := closeOff(e); err != nil {
			return err
		}
	}
	// The name links belong to the two paths and stay.
	err := unix.Renameat2(m.from.part.fd, m.from.stored, m.to.part.fd, m.to.stored, unix.RENAME_EXCHANGE)
	m.forgetDirs()
	return err
}

// forgetDirs drops the directories that moved from the cache.
func (m *move) forgetDirs() {
	for _, p := range []vpath.Path{m.old, m.path} {
		if m.from.st.isDir() || m.exists && m.to.st.isDir() {
			m.s.dirs.purge(p)
		} else {
			m.s.dirs.forget(p)
		}
	}
}

// closeOff makes the delta's directory e opaque, so that no lower layer shows through it at
// any path.
func closeOff(e entry) error {
	if !e.st.isDir() {
		return nil
	}
	return makeMarker(e.part.fd, e.stored)
}

// replace moves old to path, and replaces an entry there.
func (m *move) replace() (*Orphan, error) {
	s := m.s
	if err := m.checkMoves(m.old, &m.from.st); err != nil {
		return nil, err
	}
	if err := m.clear(); err != nil {
		return nil, err
	}
	up, err := s.ensureDir(m.path.Dir())
	if err != nil {
		return nil, err
	}
	m.hold(up)
	pl := newPlace(up, m.path)
	if err := m.prepare(pl); err != nil {
		return nil, err
	}
	var orphan *Orphan
	if m.exists && m.o.KeepReplaced && !m.to.st.isDir() {
		if orphan, err = m.keepReplaced(); err != nil {
			return nil, err
		}
	}
	if err := m.commit(pl); err != nil {
		orphan.forgetLocked()
		return nil, err
	}
	return orphan, nil
}

// clear prepares the entry at path for its replacement. It empties a directory that shows
// no entries also on disk, and records a file of the source.
func (m *move) clear() error {
	s := m.s
	if !m.exists {
		return m.keepCovered()
	}
	if !m.to.st.isDir() {
		if m.to.part.origin == Source {
			return s.keepReplaced(m.path, m.to, journal.BaseRecord)
		}
		return nil
	}
	visible := func(name string) bool { return m.o.visible(m.path.Child(name)) }
	if err := s.checkEmpty(m.path, visible); err != nil {
		return err
	}
	if err := s.forgetHidden(m.path); err != nil {
		return err
	}
	v, err := s.ensureDir(m.path)
	if err != nil {
		return err
	}
	defer s.dirs.release(v)
	if m.to.part.layer != top {
		m.to.part.layer = top
		if m.to.st, err = statFd(v.parts[0].fd); err != nil {
			return err
		}
	}
	up, err := s.ensureDir(m.path.Dir())
	if err != nil {
		return err
	}
	m.hold(up)
	// The whiteout beside the directory replaces its opaque marker.
	if err := s.makeWhiteout(up.parts[0].fd, m.path.Base()); err != nil {
		return err
	}
	return s.emptyStored(v.parts[0].fd)
}

// keepCovered records the content that a whiteout at path hides, as place does.
func (m *move) keepCovered() error {
	if !m.to.hidden || !m.from.st.isRegular() {
		return nil
	}
	return m.s.keepCovered(m.path, m.toV)
}

// prepare makes sure that no lower layer shows through at old after the move, or inside a
// directory at its new path.
func (m *move) prepare(pl *place) error {
	s := m.s
	_, err := s.find(m.fromV, m.old.Base(), top+1)
	wasBelow := err == nil
	if err != nil && err != unix.ENOENT {
		return err
	}
	if m.from.st.isDir() {
		if err := closeOff(m.from); err != nil {
			return err
		}
	}
	if wasBelow {
		if err := s.makeWhiteout(m.from.part.fd, m.old.Base()); err != nil {
			return err
		}
	}
	return pl.before()
}

// keepReplaced makes the replaced file an orphan.
func (m *move) keepReplaced() (*Orphan, error) {
	o, err := m.s.pin(m.path, m.to)
	if err != nil || m.to.part.layer != top {
		return o, err
	}
	name := m.s.temp()
	if err := unix.Linkat(m.to.part.fd, m.to.stored, m.s.orphans, name, 0); err != nil {
		return nil, err
	}
	o.name = name
	m.s.addOrphanName(m.to.st.ino, 1)
	return o, nil
}

// commit does the rename(2), and then removes what it made superfluous.
func (m *move) commit(pl *place) error {
	s := m.s
	if m.exists && m.to.part.layer == top && (m.to.st.isDir() || !m.o.KeepReplaced && m.to.st.nlink <= 1) {
		s.freed(&m.to.st)
	}
	if err := unix.Renameat(m.from.part.fd, m.from.stored, pl.dir, pl.stored); err != nil {
		return err
	}
	m.forgetDirs()
	if err := dropNameLink(m.from.part.fd, m.old.Base()); err != nil || !m.overWhiteout() {
		return err
	}
	return dropWhiteout(pl.dir, pl.name)
}

// overWhiteout reports whether path may have a whiteout: the one that was found, the one
// that clear made beside a directory, or one that a crash left beside an entry.
func (m *move) overWhiteout() bool {
	if !m.exists {
		return m.to.covered
	}
	return m.to.st.isDir() || m.to.part.layer == top && len(m.toV.parts) > 1
}

func (o *RenameOptions) visible(p vpath.Path) bool {
	return o.Visible == nil || o.Visible(p)
}
