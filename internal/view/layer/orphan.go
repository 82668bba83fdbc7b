package layer

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Orphan is a file without a name in the view: it was unlinked or replaced while in use, or
// made without a name (O_TMPFILE). The caller calls Forget at the end. Open removes the
// orphans that a crash left.
type Orphan struct {
	s *Stack

	mu     sync.Mutex
	path   vpath.Path // the last name it had
	name   string     // in orphan/; "" for a file of a lower layer
	pinned int        // handle on the file of a lower layer; -1 for a file of the delta or an unreadable one
	origin Origin     // of the pinned file
	st     stat       // of the pinned file when it was pinned
	target string     // of a pinned symbolic link
	sole   uint64     // backing inode of a file of the delta without other names, else 0
	spent  bool
}

// CreateOrphan makes a regular file that has no name yet. Errors: Exhausted.
func (s *Stack) CreateOrphan(mode uint32) (*Orphan, error) {
	if err := s.writable(); err != nil {
		return nil, wrap("create", vpath.Root, err)
	}
	if err := s.quota.addInodes(1); err != nil {
		return nil, wrap("create", vpath.Root, err)
	}
	s.ns.RLock()
	defer s.ns.RUnlock()
	o := &Orphan{s: s, path: vpath.Root, name: s.temp(), pinned: -1}
	err := unix.Mknodat(s.orphans, o.name, unix.S_IFREG|0o600, 0)
	if err == nil {
		err = unix.Fchmodat(s.orphans, o.name, mode&modeMask, 0)
	}
	if err == nil {
		err = s.countOrphan(o.name)
	}
	if err != nil {
		_ = safefs.Unlink(s.orphans, o.name)
		s.quota.dropInodes(1)
		return nil, wrap("create", vpath.Root, err)
	}
	return o, nil
}

// LinkOrphan gives an orphan of the delta the name p. The orphan is unusable afterwards.
// Errors: as Create; NotFound if the orphan is unusable, or if its file is not of the
// delta.
func (s *Stack) LinkOrphan(o *Orphan, p vpath.Path) (Info, error) {
	s.ns.Lock()
	defer s.ns.Unlock()
	i, err := s.linkOrphan(o, p)
	return i, wrap("link", p, err)
}

func (s *Stack) linkOrphan(o *Orphan, p vpath.Path) (Info, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.spent || o.name == "" {
		return Info{}, unix.ENOENT
	}
	pl, err := s.place(p)
	if err != nil {
		return Info{}, err
	}
	defer s.dirs.release(pl.v)
	if err := pl.before(); err != nil {
		return Info{}, err
	}
	s.links.touch(p)
	if err := unix.Renameat2(s.orphans, o.name, pl.dir, pl.stored, unix.RENAME_NOREPLACE); err != nil {
		return Info{}, err
	}
	o.spent = true
	st, err := statAt(pl.dir, pl.stored)
	if err != nil {
		return Info{}, err
	}
	s.addOrphanName(st.ino, -1)
	return s.info(p, Delta, &st), pl.after()
}

// pin returns an orphan for e before its name p is removed. The orphan has a handle on a
// file of a lower layer; the caller moves a file of the delta with moveIn. Errors: as hold.
func (s *Stack) pin(p vpath.Path, e entry) (*Orphan, error) {
	if s.transformOf(p, &e) != nil {
		return nil, unix.EACCES
	}
	o := &Orphan{s: s, path: p, pinned: -1, origin: e.part.origin, st: e.st}
	if e.part.layer == top {
		return o, nil
	}
	var err error
	switch e.st.kind() {
	case unix.S_IFREG:
		fd, st, openErr := s.openShown(p, e)
		switch openErr {
		case nil:
			err = o.hold(fd, st)
		case unix.EACCES: // the file stays unreadable
		default:
			err = openErr
		}
	case unix.S_IFLNK:
		o.target, err = readlinkAt(e.part.fd, e.stored)
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// moveIn moves the delta's entry e to the directory of orphans.
func (o *Orphan) moveIn(e entry) error {
	name := o.s.temp()
	if err := unix.Renameat2(e.part.fd, e.stored, o.s.orphans, name, unix.RENAME_NOREPLACE); err != nil {
		return err
	}
	o.name = name
	if e.st.nlink <= 1 {
		o.sole = e.st.ino
	}
	o.s.addOrphanName(e.st.ino, 1)
	return dropNameLink(e.part.fd, o.path.Base())
}

func (s *Stack) addOrphanName(ino uint64, n int) {
	s.orphanMu.Lock()
	defer s.orphanMu.Unlock()
	s.orphanLinks[ino] += uint32(n)
	if s.orphanLinks[ino] == 0 {
		delete(s.orphanLinks, ino)
	}
}

func (s *Stack) countOrphan(name string) error {
	st, err := statAt(s.orphans, name)
	if err != nil {
		return err
	}
	s.addOrphanName(st.ino, 1)
	s.quota.settle(&st)
	return s.number(&st)
}

// Info describes the orphan. Nlink counts the names that it still has in the view. Errors:
// NotFound after Forget.
func (o *Orphan) Info() (Info, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i, err := o.info()
	return i, wrap("stat", o.path, err)
}

func (o *Orphan) info() (Info, error) {
	if o.spent {
		return Info{}, unix.ENOENT
	}
	if o.name == "" {
		if o.pinned >= 0 {
			if st, err := statFd(o.pinned); err == nil {
				o.st.size, o.st.blocks, o.st.mtime, o.st.atime = st.size, st.blocks, st.mtime, st.atime
			}
		}
		i := o.s.info(o.path, o.origin, &o.st)
		i.Nlink = 0
		return i, nil
	}
	st, err := statAt(o.s.orphans, o.name)
	if err != nil {
		return Info{}, err
	}
	i := o.s.info(o.path, Delta, &st)
	if st.nlink == 1 {
		i.Nlink = 0
	}
	return i, nil
}

// Readlink returns the target of an orphaned symbolic link.
func (o *Orphan) Readlink() (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.name == "" {
		if o.st.kind() != unix.S_IFLNK {
			return "", wrap("readlink", o.path, unix.EINVAL)
		}
		return o.target, nil
	}
	target, err := readlinkAt(o.s.orphans, o.name)
	return target, wrap("readlink", o.path, err)
}

// Open opens the orphan. Writing to a file of a lower layer copies it first.
// Errors: as Stack.Open.
func (o *Orphan) Open(write bool) (*File, Info, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f, i, err := o.open(write)
	return f, i, wrap("open", o.path, err)
}

func (o *Orphan) open(write bool) (*File, Info, error) {
	if o.spent {
		return nil, Info{}, unix.ENOENT
	}
	if write {
		if err := o.copyUp(-1); err != nil {
			return nil, Info{}, err
		}
	}
	s := o.s
	if o.name == "" {
		if err := o.readable(); err != nil {
			return nil, Info{}, err
		}
		fd, err := unix.FcntlInt(uintptr(o.pinned), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, Info{}, err
		}
		i, err := o.info()
		return s.newFile(fd, o.path, o.origin, false), i, err
	}
	st, err := statAt(s.orphans, o.name)
	if err != nil {
		return nil, Info{}, err
	}
	fd, _, err := s.openEntry(entry{part: part{layer: top, origin: Delta, fd: s.orphans}, stored: o.name, st: st}, write)
	if err != nil {
		return nil, Info{}, err
	}
	i, err := o.info()
	return s.newFile(fd, o.path, Delta, write), i, err
}

// SetAttr changes the orphan's attributes, as Stack.SetAttr does.
func (o *Orphan) SetAttr(a SetAttr) (Info, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i, err := o.setAttr(a)
	return i, wrap("setattr", o.path, err)
}

func (o *Orphan) setAttr(a SetAttr) (Info, error) {
	whole := int64(-1)
	if a.Size != nil {
		whole = *a.Size
	}
	if o.spent {
		return Info{}, unix.ENOENT
	}
	if err := o.copyUp(whole); err != nil {
		return Info{}, err
	}
	st, err := statAt(o.s.orphans, o.name)
	if err != nil {
		return Info{}, err
	}
	if err := o.s.setAttrAt(o.s.orphans, o.name, &st, a); err != nil {
		return Info{}, err
	}
	return o.info()
}

// Forget removes the orphan. It does nothing for a nil orphan or one that was removed.
func (o *Orphan) Forget() {
	if o == nil {
		return
	}
	o.s.ns.Lock() // excludes the removal of other names, so that one caller removes the last name
	defer o.s.ns.Unlock()
	o.forgetLocked()
}

// forgetLocked is Forget for a caller that holds ns exclusively.
func (o *Orphan) forgetLocked() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.spent {
		return
	}
	o.spent = true
	o.unpin()
	if o.name == "" {
		return
	}
	st := stat{ino: o.sole, nlink: 1}
	if o.sole == 0 {
		var err error
		if st, err = statAt(o.s.orphans, o.name); err != nil {
			return
		}
	}
	o.s.addOrphanName(st.ino, -1)
	if st.nlink <= 1 {
		o.s.freed(&st)
	}
	_ = safefs.Unlink(o.s.orphans, o.name) // Open sweeps what remains
}

// orphanNames returns how many of the backing file's names are orphans.
func (s *Stack) orphanNames(st *stat) uint32 {
	if st.nlink < 2 {
		return 0
	}
	s.orphanMu.Lock()
	defer s.orphanMu.Unlock()
	return s.orphanLinks[st.ino]
}
