package layer

import (
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Transform shows a regular file with another content than it has, whichever layer it comes
// from. Such a file can be looked up, listed and opened for reading. It cannot be written or
// copied up, and no descriptor of it is opened for the caller.
type Transform struct {
	// Key identifies the transform. Transforms with the same key and the same target make
	// the same of a content.
	Key string
	// Make returns the content to show, or an error for a file that is then absent. It
	// must not depend on anything else. Nil together with an empty Target hides every file.
	Make func(content []byte) ([]byte, error)
	// MaxBytes is the size of the largest file that Make gets. A larger one is absent.
	MaxBytes int64
	// Target is another file, the content of which is shown in place of Make's. If Target is
	// no regular file, or one with several names in the layers above the source, the file is
	// absent: another rule may hide one of the names. No transform applies to Target itself.
	Target vpath.Path
}

// SetTransforms makes of the function that returns the transform for the file at a path, nil for
// none. The stack calls it for each look-up of a regular file, from several goroutines. Lookup,
// LookupIn and Open follow it; the methods for those who review, apply and discard do not. Nil
// transforms nothing.
func (s *Stack) SetTransforms(of func(p vpath.Path) *Transform) {
	if of == nil {
		s.transforms.of.Store(nil)
		return
	}
	s.transforms.of.Store(&of)
}

// Bounds of the cached contents. The stack calls Make again for a content that it dropped.
const (
	transformedMaxFiles = 256
	transformedMaxBytes = 32 << 20
)

// transformed is the result of Make for one version of a file.
type transformed struct {
	path    vpath.Path
	key     string
	of      stat
	content []byte
}

// contents caches results, oldest first.
type contents struct {
	mu    sync.Mutex
	list  []*transformed
	bytes int
}

// get returns the result for the file at p in the state st, or nil.
func (c *contents) get(p vpath.Path, key string, st *stat) *transformed {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.list {
		if x.path == p && x.key == key && x.of.unchanged(st) {
			return x
		}
	}
	return nil
}

// put adds x in place of an older result for its path.
func (c *contents) put(x *transformed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.list, func(o *transformed) bool { return o.path == x.path }); i >= 0 {
		c.dropLocked(i)
	}
	c.list = append(c.list, x)
	c.bytes += len(x.content)
	for len(c.list) > 1 && (len(c.list) > transformedMaxFiles || c.bytes > transformedMaxBytes) {
		c.dropLocked(0)
	}
}

func (c *contents) dropLocked(i int) {
	c.bytes -= len(c.list[i].content)
	c.list = slices.Delete(c.list, i, i+1)
}

// transformOf returns the transform for the entry e at p, or nil.
func (s *Stack) transformOf(p vpath.Path, e *entry) *Transform {
	of := s.transforms.of.Load()
	if of == nil || !e.st.isRegular() {
		return nil
	}
	return (*of)(p)
}

// transform returns the content that e shows under t, and changes i, the Info of e, to
// describe it. A file that cannot be shown is ENOENT.
func (s *Stack) transform(p vpath.Path, e *entry, t *Transform, i *Info) (*File, error) {
	if t.Make == nil {
		return s.openTarget(p, t, i)
	}
	x, err := s.makeTransformed(p, e, t)
	if err != nil {
		return nil, err
	}
	i.Size = int64(len(x.content))
	i.Blocks = (i.Size + 511) / 512
	i.ID = FileID{Dev: i.ID.Dev, Ino: hashNumber(i.ID.Dev, i.ID.Ino, t.Key), Birth: i.ID.Birth}
	return s.shownFile(-1, p, t, x.content, i), nil
}

// makeTransformed returns the result of Make for e.
func (s *Stack) makeTransformed(p vpath.Path, e *entry, t *Transform) (*transformed, error) {
	if x := s.transforms.contents.get(p, t.Key, &e.st); x != nil {
		return x, nil
	}
	for range tries {
		fd, st, err := s.openEntry(*e, false)
		if err != nil {
			return nil, absentFor(err)
		}
		content, err := readWhole(fd, st, t.MaxBytes)
		unix.Close(fd)
		switch err {
		case nil:
		case errChanged:
			continue
		default:
			return nil, absentFor(err)
		}
		x := &transformed{path: p, key: t.Key, of: st}
		if x.content, err = t.Make(content); err != nil {
			return nil, unix.ENOENT //nolint:nilerr // no content is certain to be safe
		}
		s.transforms.contents.put(x)
		return x, nil
	}
	return nil, unix.EBUSY
}

// readWhole reads a file that does not change meanwhile. Errors: errChanged; EFBIG.
func readWhole(fd int, st stat, limit int64) ([]byte, error) {
	if st.size > limit {
		return nil, unix.EFBIG
	}
	content, err := safefs.ReadRange(fd, 0, st.size)
	if err != nil {
		return nil, err
	}
	if now, err := statFd(fd); err != nil || !st.unchanged(&now) || int64(len(content)) != st.size {
		return nil, errChanged
	}
	return content, nil
}

// absentFor returns ENOENT for what is a property of the file, and another error as it is.
func absentFor(err error) error {
	switch err {
	case unix.EACCES, unix.EFBIG, unix.EISDIR, unix.ELOOP, unix.ENXIO, unix.ENOTDIR:
		return unix.ENOENT
	}
	return err
}

// openTarget opens the file that t names, and changes i to describe its content.
func (s *Stack) openTarget(p vpath.Path, t *Transform, i *Info) (*File, error) {
	if t.Target == "" || t.Target.IsRoot() {
		return nil, unix.ENOENT
	}
	v, e, err := s.locate(t.Target)
	if err != nil {
		return nil, absentFor(err)
	}
	defer s.dirs.release(v)
	if target := s.info(t.Target, e.part.origin, &e.st); !e.st.isRegular() || target.Nlink > 1 {
		return nil, unix.ENOENT
	}
	fd, st, err := s.openShown(t.Target, e)
	if err != nil {
		return nil, absentFor(err)
	}
	i.Size, i.Blocks = st.size, st.blocks
	i.Atime, i.Mtime, i.Ctime = st.atime, st.mtime, st.ctime
	i.ID = FileID{Dev: i.ID.Dev, Ino: hashNumber(i.ID.Ino, st.ino, t.Key+versionOf(&st)), Birth: i.ID.Birth}
	i.Borrowed = true
	return s.shownFile(fd, p, t, nil, i), nil
}

// versionOf stands for the state of a file.
func versionOf(st *stat) string {
	var b []byte
	for _, n := range []int64{int64(st.dev), st.size, st.birth, st.mtime.Nano(), st.ctime.Nano()} {
		for shift := 0; shift < 64; shift += 8 {
			b = append(b, byte(n>>shift))
		}
	}
	return string(b)
}

// shownFile returns the file at p, which i describes, with the content of fd or, if fd is -1,
// with content.
func (s *Stack) shownFile(fd int, p vpath.Path, t *Transform, content []byte, i *Info) *File {
	f := s.newFile(fd, p, i.Origin, false)
	shown := *i
	f.shown, f.content, f.transform = &shown, content, t.Key
	return f
}

// transformInfo changes i to describe the content that e shows under t.
func (s *Stack) transformInfo(p vpath.Path, e *entry, t *Transform, i *Info) error {
	f, err := s.transform(p, e, t, i)
	if err == nil {
		f.Close()
	}
	return err
}

// openTransformed is openOnce for an entry with a transform.
func (s *Stack) openTransformed(p vpath.Path, e *entry, t *Transform, write bool) (*File, Info, error) {
	if write {
		return nil, Info{}, unix.EACCES
	}
	i := s.info(p, e.part.origin, &e.st)
	f, err := s.transform(p, e, t, &i)
	return f, i, err
}

// Transform returns the key of the transform that made the content of f, "" if it is that of
// the file.
func (f *File) Transform() string { return f.transform }

// Pread is one pread(2). It returns fewer bytes only at the end of the file. Errors: those of
// pread(2).
func (f *File) Pread(b []byte, off int64) (int, error) {
	if f.fd < 0 {
		return f.readContent(b, off), nil
	}
	for {
		n, err := unix.Pread(f.fd, b, off)
		if err != unix.EINTR {
			return n, err
		}
	}
}

func (f *File) readContent(b []byte, off int64) int {
	if off < 0 || off >= int64(len(f.content)) {
		return 0
	}
	return copy(b, f.content[off:])
}

// Seek is lseek(2) for SEEK_DATA and SEEK_HOLE. Errors: those of lseek(2).
func (f *File) Seek(off int64, whence int) (int64, error) {
	if f.fd >= 0 {
		return unix.Seek(f.fd, off, whence)
	}
	switch size := int64(len(f.content)); {
	case whence != unix.SEEK_DATA && whence != unix.SEEK_HOLE:
		return 0, unix.EINVAL
	case off < 0 || off >= size:
		return 0, unix.ENXIO
	case whence == unix.SEEK_HOLE:
		return size, nil
	}
	return off, nil
}
