package layer

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Orphan is a file without a name in the view: unlinked or replaced while
// somebody still uses it, or made without one (O_TMPFILE). The owner calls
// Forget in the end; what a crash leaves, Open removes.
type Orphan struct {
	s *Stack

	mu     sync.Mutex
	path   vpath.Path // the last name it had
	name   string     // in orphan/, "" while it is not of the delta
	pinned int        // handle on a lower layer's file; -1 if it is of the delta or unreadable
	origin Origin     // of the pinned file
	st     stat       // of the pinned file when it was pinned
	target string     // of a pinned symbolic link
	sole   uint64     // backing inode of a file of the delta that has no other name, else 0
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

// LinkOrphan gives an orphan of the delta the name p; the orphan is then spent
// and p is the file's name. Errors: as Create; NotFound for a spent orphan or
// one whose file is not of the delta.
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

// pin prepares the orphan of e, whose name p is about to go. A file of a lower
// layer is held by a handle; one of the delta is moved by adopt. Errors: as hold.
func (s *Stack) pin(p vpath.Path, e entry) (*Orphan, error) {
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
		case unix.EACCES: // unreadable before, unreadable now
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

// adopt moves the delta's entry e to the orphans.
func (o *Orphan) adopt(e entry) error {
	name := o.s.temp()
	if err := unix.Renameat2(e.part.fd, e.stored, o.s.orphans, name, unix.RENAME_NOREPLACE); err != nil {
		return err
	}
	o.name = name
	if e.st.nlink <= 1 {
		o.sole = e.st.ino
	}
	o.s.addOrphanName(e.st.ino, 1)
	return dropNameBeside(e.part.fd, o.path.Base())
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

// Info describes the orphan; Nlink counts the names it still has elsewhere.
// Errors: NotFound once forgotten.
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

// Forget removes the orphan for good. A nil or forgotten orphan stays so.
func (o *Orphan) Forget() {
	if o == nil {
		return
	}
	o.s.ns.Lock() // other names of the file go one at a time, so that the last is known
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
	o.letGo()
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
	_ = safefs.Unlink(o.s.orphans, o.name) // what it leaves, Open sweeps
}

// orphanNames returns how many names of the backing file are orphans'.
func (s *Stack) orphanNames(st *stat) uint32 {
	if st.nlink < 2 {
		return 0
	}
	s.orphanMu.Lock()
	defer s.orphanMu.Unlock()
	return s.orphanLinks[st.ino]
}
