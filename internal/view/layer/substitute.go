package layer

import (
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Substitutes shows some regular files of the source with another content, until the delta
// has a file at their path. A copy-up copies the shown content, and records the Base of the
// source's file. The stack calls the functions at any time and from several goroutines.
type Substitutes struct {
	// Wants reports whether the file at p may need another content. The stack calls it
	// often.
	Wants func(p vpath.Path) bool
	// Make returns the content to show instead of content, or nil to show content itself.
	// The stack does not use content afterwards.
	Make func(p vpath.Path, content []byte) []byte
	// MaxBytes is the size of the largest file for which the stack calls Make.
	MaxBytes int64
}

// Bounds of the cached contents, which do not count for the quota. The stack calls Make
// again for a content that it dropped from the cache.
const (
	substituteMaxFiles = 32
	substituteMaxBytes = 256 << 20
)

// substitutes caches the contents, oldest first.
type substitutes struct {
	mu    sync.Mutex
	list  []*substitute
	bytes int64
}

// substitute is the result of Make for one version of a file.
type substitute struct {
	path vpath.Path
	of   stat // the source's file
	fd   int  // a nameless file in work/; -1: the file shows its own content
	is   stat // of fd
}

// maySubstitute reports whether the entry e at p may have another content. Every look-up
// calls it, and it takes no lock.
func (s *Stack) maySubstitute(p vpath.Path, e *entry) bool {
	o := s.o.Substitutes
	return o != nil && !s.o.ReadOnly && e.part.origin == Source && e.st.isRegular() && !e.st.mounted && e.st.size <= o.MaxBytes && o.Wants(p)
}

// showing returns the substitute for the source's entry e at p, or nil. maySubstitute must
// be true. The caller holds substitutes.mu.
func (s *Stack) showing(p vpath.Path, e *entry) *substitute {
	c := &s.substitutes
	i := slices.IndexFunc(c.list, func(x *substitute) bool { return x.path == p })
	if i >= 0 && c.list[i].of.unchanged(&e.st) {
		return c.list[i].orNil()
	}
	if i >= 0 {
		c.dropLocked(i)
	}
	x, err := s.makeSubstitute(p, e)
	if err != nil {
		return nil // unreadable, or changing: the next call tries again
	}
	c.list = append(c.list, x)
	c.bytes += x.is.size
	for len(c.list) > 1 && (len(c.list) > substituteMaxFiles || c.bytes > substituteMaxBytes) {
		c.dropLocked(0)
	}
	return x.orNil()
}

func (x *substitute) orNil() *substitute {
	if x.fd < 0 {
		return nil
	}
	return x
}

func (c *substitutes) dropLocked(i int) {
	x := c.list[i]
	c.list = slices.Delete(c.list, i, i+1)
	c.bytes -= x.is.size
	if x.fd >= 0 {
		unix.Close(x.fd)
	}
}

// makeSubstitute calls Make for e. It fails if e changes meanwhile.
func (s *Stack) makeSubstitute(p vpath.Path, e *entry) (*substitute, error) {
	fd, st, err := s.openEntry(*e, false)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if !st.unchanged(&e.st) {
		return nil, errChanged
	}
	content, err := safefs.ReadRange(fd, 0, st.size)
	if err != nil {
		return nil, err
	}
	if now, err := statFd(fd); err != nil || !st.unchanged(&now) {
		return nil, errChanged
	}
	x := &substitute{path: p, of: st, fd: -1}
	if content = s.o.Substitutes.Make(p, content); content == nil {
		return x, nil
	}
	return x, x.store(s, content)
}

// store writes content to a nameless file with the times of the source's.
func (x *substitute) store(s *Stack, content []byte) error {
	name := s.temp()
	fd, err := openat2(s.work, name, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	err = safefs.Unlink(s.work, name)
	if err == nil {
		err = safefs.WriteAll(fd, content, 0)
	}
	if err == nil {
		times := []unix.Timespec{x.of.atime, x.of.mtime}
		err = unix.UtimesNanoAt(fd, "", times, unix.AT_EMPTY_PATH)
	}
	if err == nil {
		x.is, err = statFd(fd)
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	x.fd = fd
	return nil
}

// substituteInfo changes i, the Info of e, to describe its substitute, if any.
func (s *Stack) substituteInfo(p vpath.Path, e *entry, i *Info) {
	if !s.maySubstitute(p, e) {
		return
	}
	s.substitutes.mu.Lock()
	defer s.substitutes.mu.Unlock()
	if x := s.showing(p, e); x != nil {
		x.describe(i)
	}
}

func (x *substitute) describe(i *Info) {
	i.Size, i.Blocks = x.is.size, x.is.blocks
	i.ID = FileID{x.is.dev, x.is.ino, x.is.birth}
}

// openSubstitute opens the substitute for e. ok is false if there is none. The caller
// closes fd.
func (s *Stack) openSubstitute(p vpath.Path, e *entry) (fd int, x substitute, ok bool, err error) {
	if !s.maySubstitute(p, e) {
		return -1, substitute{}, false, nil
	}
	s.substitutes.mu.Lock()
	defer s.substitutes.mu.Unlock()
	found := s.showing(p, e)
	if found == nil {
		return -1, substitute{}, false, nil
	}
	fd, err = unix.FcntlInt(uintptr(found.fd), unix.F_DUPFD_CLOEXEC, 0)
	return fd, *found, err == nil, err
}

// openSubstituteFile is openOnce for an entry with a substitute.
func (s *Stack) openSubstituteFile(p vpath.Path, e *entry) (*File, Info, error) {
	fd, x, ok, err := s.openSubstitute(p, e)
	if !ok {
		return nil, Info{}, err
	}
	i := s.info(p, Source, &x.of)
	x.describe(&i)
	f := s.newFile(fd, p, Source, false)
	f.shown = &i
	return f, i, nil
}

// ForgetSubstitutes drops the cached contents and returns the paths that showed them. Call
// it when the results of Make have changed.
func (s *Stack) ForgetSubstitutes() []vpath.Path {
	c := &s.substitutes
	c.mu.Lock()
	defer c.mu.Unlock()
	var paths []vpath.Path
	for len(c.list) > 0 {
		paths = append(paths, c.list[0].path)
		c.dropLocked(0)
	}
	return paths
}

// openShown opens the content that e shows for reading. Its attributes have the times and
// the identity of e.
func (s *Stack) openShown(p vpath.Path, e entry) (int, stat, error) {
	fd, x, ok, err := s.openSubstitute(p, &e)
	if err != nil || !ok {
		if err != nil {
			return -1, stat{}, err
		}
		return s.openEntry(e, false)
	}
	st := x.of
	st.size, st.blocks = x.is.size, x.is.blocks
	return fd, st, nil
}
