package layer

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// SetAttr has the attributes to change. Nil leaves an attribute unchanged.
type SetAttr struct {
	Mode  *uint32 // permission bits; setuid and setgid are dropped
	Size  *int64  // bytes; regular files only
	Atime *unix.Timespec
	Mtime *unix.Timespec
	// OwnerOnly says that only the owner may make this change (chmod(2), utimensat(2)). For
	// a source file of another user than Options.User it fails with EPERM.
	OwnerOnly bool
}

// SetAttr changes the attributes of p in the delta. It first copies p up if necessary.
// Errors: NotFound; Precondition (EISDIR, for a size); Invalid; Unsupported (EOPNOTSUPP,
// for the mode of a symbolic link); Exhausted.
func (s *Stack) SetAttr(p vpath.Path, a SetAttr) (Info, error) {
	if p.IsRoot() {
		i, err := s.setRootAttr(a)
		return i, wrap("setattr", p, err)
	}
	if err := s.writable(); err != nil {
		return Info{}, wrap("setattr", p, err)
	}
	whole := int64(-1)
	if a.Size != nil {
		whole = *a.Size
	}
	for range tries {
		i, err := s.setAttrOnce(p, a)
		if err != errNotInTop {
			return i, wrap("setattr", p, err)
		}
		if err := s.copyUp(p, whole); err != nil {
			return Info{}, wrap("setattr", p, err)
		}
	}
	return Info{}, wrap("setattr", p, unix.EBUSY)
}

func (s *Stack) setAttrOnce(p vpath.Path, a SetAttr) (Info, error) {
	s.ns.RLock()
	defer s.ns.RUnlock()
	v, e, err := s.locate(p)
	if err != nil {
		return Info{}, err
	}
	defer s.dirs.release(v)
	if err := s.maySetAttr(p, &e, a); err != nil {
		return Info{}, err
	}
	if e.part.layer != top {
		return Info{}, errNotInTop
	}
	if err := s.setAttrAt(e.part.fd, e.stored, &e.st, a); err != nil {
		return Info{}, err
	}
	if e.st, err = statAt(e.part.fd, e.stored); err != nil {
		return Info{}, err
	}
	i := s.info(p, Delta, &e.st)
	return i, s.showRights(p, &e, &i)
}

// setAttrAt changes the attributes of the file name in dir. No other caller changes the
// file meanwhile.
func (s *Stack) setAttrAt(dir int, name string, st *stat, a SetAttr) error {
	if a.Size != nil {
		if err := s.truncateAt(dir, name, st, *a.Size); err != nil {
			return err
		}
	}
	if a.Mode != nil {
		if st.kind() == unix.S_IFLNK {
			return unix.EOPNOTSUPP
		}
		if err := unix.Fchmodat(dir, name, *a.Mode&modeMask, 0); err != nil {
			return err
		}
	}
	if a.Atime == nil && a.Mtime == nil {
		return nil
	}
	return setTimes(dir, name, a.Atime, a.Mtime)
}

// setTimes sets each time that is not nil.
func setTimes(dir int, name string, atime, mtime *unix.Timespec) error {
	ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
	if atime != nil {
		ts[0] = *atime
	}
	if mtime != nil {
		ts[1] = *mtime
	}
	return unix.UtimesNanoAt(dir, name, ts, unix.AT_SYMLINK_NOFOLLOW)
}

func (s *Stack) truncateAt(dir int, name string, st *stat, size int64) error {
	if err := onlyRegular(st); err != nil {
		return err
	}
	if size < 0 {
		return unix.EINVAL
	}
	fd, err := openat2(dir, name, unix.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	s.writers.RLock()
	defer s.writers.RUnlock()
	if err := unix.Ftruncate(fd, size); err != nil {
		return err
	}
	now, err := statFd(fd) // a shorter file frees blocks, a longer one has a hole
	if err == nil {
		s.quota.settle(&now)
	}
	return err
}

func (s *Stack) setRootAttr(a SetAttr) (Info, error) {
	if a.Size != nil {
		return Info{}, unix.EISDIR
	}
	if err := s.writable(); err != nil {
		return Info{}, err
	}
	s.ns.Lock()
	defer s.ns.Unlock()
	src, err := statFd(s.sourceRoot)
	if err == nil {
		err = s.rightsTo(s.sourceRoot, "", &src).maySet(a)
	}
	if err != nil {
		return Info{}, err
	}
	if err := s.touchRoot(); err != nil {
		return Info{}, err
	}
	st, err := statFd(s.layers[top].root)
	if err != nil {
		return Info{}, err
	}
	if err := s.setAttrAt(s.layers[top].root, ".", &st, a); err != nil {
		return Info{}, err
	}
	return s.rootInfo()
}
