package layer

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// File is an open regular file of the view. It is safe for concurrent use,
// but the caller must not close it while using it.
type File struct {
	s         *Stack
	fd        int
	path      vpath.Path // at which it was opened, for messages and inode numbers
	origin    Origin     // when it was opened
	writable  bool
	gen       uint64
	shown     *Info  // describes a replacement content, see Substitutes and Transform
	transform string // Transform.Key
	content   []byte // if fd is -1
	closed    atomic.Bool
}

func (s *Stack) newFile(fd int, p vpath.Path, o Origin, writable bool) *File {
	return &File{s: s, fd: fd, path: p, origin: o, writable: writable, gen: s.gen.Load()}
}

// tries is how often an operation starts again if names or contents change while it copies
// without a lock.
const tries = 8

// Open opens the regular file p. With write it opens the file of the delta, and first
// copies p up if necessary. The descriptor is never O_APPEND. Errors: NotFound;
// Precondition (EISDIR); Invalid (ELOOP) for a symbolic link; Unsupported (ENXIO) for any
// other file that is not regular; Denied.
func (s *Stack) Open(p vpath.Path, write bool) (*File, Info, error) {
	if write {
		if err := s.writable(); err != nil {
			return nil, Info{}, wrap("open", p, err)
		}
	}
	for range tries {
		f, i, err := s.openOnce(p, write)
		if err != errNotInTop {
			return f, i, wrap("open", p, err)
		}
		if err := s.copyUp(p, -1); err != nil {
			return nil, Info{}, wrap("open", p, err)
		}
	}
	return nil, Info{}, wrap("open", p, unix.EBUSY)
}

func (s *Stack) openOnce(p vpath.Path, write bool) (*File, Info, error) {
	s.ns.RLock()
	defer s.ns.RUnlock()
	if p.IsRoot() {
		return nil, Info{}, unix.EISDIR
	}
	v, e, err := s.locate(p)
	if err != nil {
		return nil, Info{}, err
	}
	defer s.dirs.release(v)
	if t := s.transformOf(p, &e); t != nil {
		return s.openTransformed(p, &e, t, write)
	}
	if write && e.part.layer != top {
		return nil, Info{}, e.mayWrite()
	}
	return s.openFound(p, e, write)
}

// openFound opens the entry e at p, of the delta if write is set.
func (s *Stack) openFound(p vpath.Path, e entry, write bool) (*File, Info, error) {
	if f, i, err := s.openSubstituteFile(p, &e); f != nil || err != nil {
		return f, i, err
	}
	fd, st, err := s.openEntry(e, write)
	if err != nil {
		return nil, Info{}, err
	}
	return s.newFile(fd, p, e.part.origin, write), s.info(p, e.part.origin, &st), nil
}

// openEntry opens the regular file e and returns the attributes of the open file.
func (s *Stack) openEntry(e entry, write bool) (int, stat, error) {
	if err := onlyRegular(&e.st); err != nil {
		return -1, stat{}, err
	}
	if e.part.origin == Source && (e.st.mounted || s.isClosed(&e.st)) {
		return -1, stat{}, unix.EACCES
	}
	flags := unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY
	if write {
		flags = unix.O_RDWR | unix.O_NONBLOCK | unix.O_NOCTTY
	}
	return openRegular(e, flags)
}

// openRegular opens e and returns the attributes of the open file.
func openRegular(e entry, flags int) (int, stat, error) {
	fd, err := openat2(e.part.fd, e.stored, flags, 0)
	if err != nil {
		return -1, stat{}, err
	}
	st, err := statFd(fd)
	if err == nil {
		err = onlyRegular(&st)
	}
	if err != nil {
		unix.Close(fd)
		return -1, stat{}, err
	}
	st.rights = e.st.rights
	return fd, st, nil
}

func onlyRegular(st *stat) error {
	switch st.kind() {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return unix.EISDIR
	case unix.S_IFLNK:
		return unix.ELOOP
	}
	return unix.ENXIO
}

// Fd returns the descriptor, for fsync and the like, -1 if there is none. To read, use ReadAt,
// Pread and Seek. To write, use WriteAt and Allocate, which respect the quota and Freeze. The
// descriptor is valid until Close.
func (f *File) Fd() int { return f.fd }

// Writable reports whether the file was opened for writing.
func (f *File) Writable() bool { return f.writable }

// Close closes the descriptor. Closing again does nothing.
func (f *File) Close() error {
	if f.closed.Swap(true) || f.fd < 0 {
		return nil
	}
	return unix.Close(f.fd)
}

// Stat describes the open file, whatever its present name.
func (f *File) Stat() (Info, error) {
	if f.shown != nil {
		return *f.shown, nil
	}
	st, err := statFd(f.fd)
	if err != nil {
		return Info{}, wrap("stat", f.path, err)
	}
	if f.origin == Source {
		st.rights = f.s.rightsTo(f.fd, "", &st)
	}
	return f.s.info(f.path, f.origin, &st), nil
}

// ReadAt reads into b from offset off. It returns fewer bytes than len(b), and no error,
// only at the end of the file.
func (f *File) ReadAt(b []byte, off int64) (int, error) {
	n := 0
	for n < len(b) {
		m, err := f.Pread(b[n:], off+int64(n))
		if err != nil {
			return n, wrap("read", f.path, err)
		}
		if m == 0 {
			break
		}
		n += m
	}
	return n, nil
}

// WriteAt writes b at offset off and returns how many bytes it wrote. Errors: Precondition
// (ESTALE) if the file was frozen meanwhile: open it again; Precondition (EBADF) if it was
// not opened for writing; Exhausted.
func (f *File) WriteAt(b []byte, off int64) (int, error) {
	n := 0
	err := f.change(off, int64(len(b)), func() error {
		for n < len(b) {
			m, err := unix.Pwrite(f.fd, b[n:], off+int64(n))
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return err
			}
			n += m
		}
		return nil
	})
	return n, wrap("write", f.path, err)
}

// Allocate is fallocate(2) with its modes. Errors: as WriteAt; Unsupported.
func (f *File) Allocate(mode uint32, off, length int64) error {
	need := length
	if mode&(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_COLLAPSE_RANGE) != 0 {
		need = 0
	}
	return wrap("allocate", f.path, f.change(off, need, func() error {
		for {
			err := unix.Fallocate(f.fd, mode, off, length)
			if err != unix.EINTR {
				return err
			}
		}
	}))
}

// change runs do, which stores at most length bytes from off. It checks the quota, and
// excludes Freeze while do runs.
func (f *File) change(off, length int64, do func() error) error {
	s := f.s
	s.writers.RLock()
	defer s.writers.RUnlock()
	switch {
	case !f.writable:
		return unix.EBADF
	case f.gen != s.gen.Load():
		return unix.ESTALE
	}
	return s.quota.during(f.fd, off, length, do)
}

// Sync is fsync(2), or fdatasync(2) with dataOnly.
func (f *File) Sync(dataOnly bool) error {
	if f.fd < 0 {
		return nil
	}
	if dataOnly {
		return wrap("sync", f.path, unix.Fdatasync(f.fd))
	}
	return wrap("sync", f.path, unix.Fsync(f.fd))
}
