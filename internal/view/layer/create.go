package layer

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// Bits of a mode that a delta keeps. setuid and setgid never enter one.
const (
	modeMask = 0o1777
	typeMask = unix.S_IFMT
)

// Create makes the regular file p, which must not exist, and opens it for
// reading and writing. Errors: Exists, NotFound (no such directory), Denied
// (below a nested mount), Exhausted.
func (s *Stack) Create(p vpath.Path, mode uint32) (*File, Info, error) {
	var f *File
	i, err := s.make("create", p, func(pl *place) error {
		fd, err := openat2(pl.dir, pl.stored, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_NONBLOCK, mode&modeMask)
		if err != nil {
			return err
		}
		f = s.newFile(fd, p, Delta, true)
		return nil
	}, mode&modeMask)
	if err != nil && f != nil {
		f.Close()
		f = nil
	}
	return f, i, err
}

// Mkdir makes the directory p. Errors: as Create.
func (s *Stack) Mkdir(p vpath.Path, mode uint32) (Info, error) {
	return s.make("mkdir", p, func(pl *place) error {
		if !pl.covers {
			return unix.Mkdirat(pl.dir, pl.stored, mode&modeMask)
		}
		return s.mkdirOpaque(pl, mode&modeMask)
	}, mode&modeMask)
}

// MkdirOver is Mkdir at a path where the lower layers may have a non-directory that the
// view does not show. The new directory hides that entry, and the result does not depend on
// it. MkdirOver records no base for the entry, so that applying the directory is a
// conflict.
func (s *Stack) MkdirOver(p vpath.Path, mode uint32) (Info, error) {
	i, err := s.Mkdir(p, mode)
	if !errdefs.Is(err, errdefs.Exists) {
		return i, err
	}
	return s.makeIn(s.placeOver, "mkdir", p, func(pl *place) error {
		return s.mkdirOpaque(pl, mode&modeMask)
	}, mode&modeMask)
}

// mkdirOpaque makes a directory that hides what lower layers have at its path. It makes the
// directory in work, then renames it into place.
func (s *Stack) mkdirOpaque(pl *place, mode uint32) error {
	name := s.temp()
	if err := unix.Mkdirat(s.work, name, 0o700); err != nil {
		return err
	}
	err := makeMarker(s.work, name)
	if err == nil {
		err = unix.Fchmodat(s.work, name, mode, 0)
	}
	if err == nil {
		err = unix.Renameat2(s.work, name, pl.dir, pl.stored, unix.RENAME_NOREPLACE)
	}
	if err != nil {
		s.discard(name)
	}
	return err
}

// makeMarker makes the opaque marker in the directory dir/name.
func makeMarker(dir int, name string) error {
	fd, err := openDir(dir, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return makeEmpty(fd, nameenc.OpaqueMarker)
}

// makeEmpty makes an empty file if name does not exist.
func makeEmpty(dir int, name string) error {
	err := unix.Mknodat(dir, name, unix.S_IFREG|0o600, 0)
	if err == unix.EEXIST {
		return nil
	}
	return err
}

// Mknod makes a regular file, a FIFO or a socket. This package never opens FIFOs and
// sockets. Errors: as Create; Denied for devices.
func (s *Stack) Mknod(p vpath.Path, mode uint32) (Info, error) {
	kind := mode & typeMask
	if kind == 0 {
		kind = unix.S_IFREG
	}
	return s.make("mknod", p, func(pl *place) error {
		switch kind {
		case unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK:
			return unix.Mknodat(pl.dir, pl.stored, kind|mode&modeMask, 0)
		}
		return unix.EPERM
	}, mode&modeMask)
}

// Symlink makes a symbolic link at p. Errors: as Create; Invalid for an empty
// target.
func (s *Stack) Symlink(target string, p vpath.Path) (Info, error) {
	return s.make("symlink", p, func(pl *place) error {
		if target == "" {
			return unix.ENOENT
		}
		return unix.Symlinkat(target, pl.dir, pl.stored)
	}, keepMode)
}

// Link gives the file old a second name. old is copied up first. Errors: as
// Create; Denied for a directory.
func (s *Stack) Link(old, p vpath.Path) (Info, error) {
	for range tries {
		if err := s.copyUpToLink(old); err != nil {
			return Info{}, wrap("link", old, err)
		}
		i, err := s.linkOnce(old, p)
		if err != errNotInTop {
			return i, err
		}
	}
	return Info{}, wrap("link", old, unix.EBUSY)
}

// copyUpToLink copies up p, after checking that it may have another name.
func (s *Stack) copyUpToLink(p vpath.Path) error {
	s.ns.RLock()
	v, e, err := s.locate(p)
	if err == nil {
		s.dirs.release(v)
		err = e.mayLink()
	}
	s.ns.RUnlock()
	if err != nil {
		return err
	}
	return s.copyUp(p, -1)
}

func (s *Stack) linkOnce(old, p vpath.Path) (Info, error) {
	if err := s.quota.Reserve(entryBytes); err != nil {
		return Info{}, wrap("link", p, err)
	}
	defer s.quota.Release(entryBytes)
	s.ns.Lock()
	defer s.ns.Unlock()
	pl, err := s.place(p)
	if err != nil {
		return Info{}, wrap("link", p, err)
	}
	defer s.dirs.release(pl.v)
	v, e, err := s.locate(old)
	if err != nil {
		return Info{}, wrap("link", old, err)
	}
	defer s.dirs.release(v)
	switch {
	case e.part.layer != top:
		return Info{}, errNotInTop
	case e.st.isDir():
		return Info{}, wrap("link", old, unix.EPERM)
	}
	if err := pl.before(); err != nil {
		return Info{}, wrap("link", p, err)
	}
	s.links.touch(old, p)
	if err := unix.Linkat(e.part.fd, e.stored, pl.dir, pl.stored, 0); err != nil {
		return Info{}, wrap("link", p, err)
	}
	if err := pl.after(); err != nil {
		return Info{}, wrap("link", p, err)
	}
	s.quota.settleDir(p.Dir(), pl.dir)
	st, err := statAt(pl.dir, pl.stored)
	return s.info(p, Delta, &st), wrap("link", p, err)
}

// keepMode as a mode tells make not to set the permission bits.
const keepMode = ^uint32(0)

// make checks that p does not exist, runs do, and returns the Info of the new entry.
func (s *Stack) make(operation string, p vpath.Path, do func(*place) error, mode uint32) (Info, error) {
	return s.makeIn(s.place, operation, p, do, mode)
}

// makeIn is make with the place that find returns.
func (s *Stack) makeIn(find func(vpath.Path) (*place, error), operation string, p vpath.Path, do func(*place) error, mode uint32) (Info, error) {
	if err := s.writable(); err != nil {
		return Info{}, wrap(operation, p, err)
	}
	if err := s.quota.Reserve(entryBytes); err != nil {
		return Info{}, wrap(operation, p, err)
	}
	defer s.quota.Release(entryBytes)
	if err := s.quota.addInodes(1); err != nil {
		return Info{}, wrap(operation, p, err)
	}
	s.ns.Lock()
	defer s.ns.Unlock()
	i, err := s.makeLocked(find, p, do, mode)
	if err != nil {
		s.quota.dropInodes(1)
	}
	return i, wrap(operation, p, err)
}

func (s *Stack) makeLocked(find func(vpath.Path) (*place, error), p vpath.Path, do func(*place) error, mode uint32) (Info, error) {
	pl, err := find(p)
	if err != nil {
		return Info{}, err
	}
	defer s.dirs.release(pl.v)
	if err := pl.before(); err != nil {
		return Info{}, err
	}
	s.links.change(false, p)
	if err := do(pl); err != nil {
		return Info{}, err
	}
	st, err := statAt(pl.dir, pl.stored)
	if err == nil && mode != keepMode && st.mode&0o7777 != mode {
		// The umask, a setgid bit or an ACL of the directory changed the mode.
		err = unix.Fchmodat(pl.dir, pl.stored, mode, 0)
		st.mode = st.kind() | mode
	}
	if err == nil {
		s.quota.settle(&st)
		s.quota.settleDir(p.Dir(), pl.dir)
		err = s.number(&st)
	}
	if err == nil {
		err = pl.after()
	}
	if err != nil {
		return Info{}, err
	}
	s.dirs.forget(p)
	return s.info(p, Delta, &st), nil
}

// place is where a new entry goes: a name that the view does not have yet, in a directory
// of the delta.
type place struct {
	v      *mergedDir
	path   vpath.Path
	dir    int // the delta's directory
	name   string
	stored string
	hashed bool
	covers bool // a whiteout of the delta hides what lower layers have
}

// newPlace is the place of p in its directory v, which is in the delta.
func newPlace(v *mergedDir, p vpath.Path) *place {
	pl := &place{v: v, path: p, dir: v.parts[0].fd, name: p.Base()}
	pl.stored, pl.hashed = nameenc.Entry(pl.name)
	return pl
}

// place returns the place of p and copies its directory up. The caller holds ns exclusively
// and releases place.v. Errors: EEXIST, ENOENT, ENOTDIR, EACCES, EROFS below a nested
// mount.
func (s *Stack) place(p vpath.Path) (*place, error) {
	if p.IsRoot() {
		return nil, unix.EEXIST
	}
	if len(vpath.PlainName(p.Base())) > vpath.NameMax {
		return nil, unix.ENAMETOOLONG
	}
	if isDots(p.Base()) {
		return nil, unix.EINVAL
	}
	v, err := s.mergedDir(p.Dir())
	if err != nil {
		return nil, err
	}
	at, err := s.vacant(v, p.Base())
	if err == nil {
		err = v.mayFill()
	}
	if err == nil && !v.inTop() {
		s.dirs.release(v)
		v, err = s.ensureDir(p.Dir())
		if err != nil {
			return nil, err
		}
	}
	if err != nil {
		s.dirs.release(v)
		return nil, err
	}
	pl := newPlace(v, p)
	pl.covers = at.covered
	if at.hidden {
		if err := s.keepCovered(p, v); err != nil {
			s.dirs.release(v)
			return nil, err
		}
	}
	return pl, nil
}

// placeOver is place, except that it ignores a non-directory of the lower layers at p.
func (s *Stack) placeOver(p vpath.Path) (*place, error) {
	pl, err := s.place(p)
	if err != unix.EEXIST {
		return pl, err
	}
	v, e, err := s.locate(p)
	if err != nil {
		return nil, err
	}
	err = v.mayFill()
	s.dirs.release(v)
	if e.part.layer == top || e.st.isDir() {
		err = unix.EEXIST
	}
	if err != nil {
		return nil, err
	}
	if v, err = s.ensureDir(p.Dir()); err != nil {
		return nil, err
	}
	return newPlace(v, p), nil
}

// vacant returns EEXIST if v has the name. The entry says whether a whiteout hides it. If only the
// delta has the directory, vacant does not look: the kernel refuses an existing name.
func (s *Stack) vacant(v *mergedDir, name string) (entry, error) {
	if v.sealed {
		return entry{}, unix.EROFS
	}
	if v.inTop() && len(v.parts) == 1 && !s.isMountPoint(v.path.Child(name)) {
		return entry{}, nil
	}
	e, err := s.find(v, name, top)
	if err == unix.ENOENT {
		return e, nil
	}
	return entry{}, orExist(err)
}

func orExist(err error) error {
	if err == nil {
		return unix.EEXIST
	}
	return err
}

// before makes the name link of a hashed name, before the entry is made.
func (pl *place) before() error {
	if !pl.hashed {
		return nil
	}
	err := unix.Symlinkat(nameenc.LinkTarget(pl.name), pl.dir, nameenc.NameLink(pl.name))
	if err == unix.EEXIST {
		return nil
	}
	return err
}

// after removes the whiteout that the new entry replaces.
func (pl *place) after() error {
	if !pl.covers {
		return nil
	}
	return dropWhiteout(pl.dir, pl.name)
}

// locate returns the entry at p and its directory, which the caller releases. p is not the
// root.
func (s *Stack) locate(p vpath.Path) (*mergedDir, entry, error) {
	if p.IsRoot() {
		return nil, entry{}, unix.EBUSY
	}
	v, err := s.mergedDir(p.Dir())
	if err != nil {
		return nil, entry{}, err
	}
	e, err := s.find(v, p.Base(), top)
	if err != nil {
		s.dirs.release(v)
		return nil, entry{}, err
	}
	return v, e, nil
}
