package layer

import (
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// StandIns shows some regular files of the source with another content, until
// the delta has a file in their place. Copying such a file up copies what it
// shows; its Base is of the source's file. The functions are called at any time
// and from several goroutines.
type StandIns struct {
	// Wants says whether the file at p may need another content. It is asked
	// often.
	Wants func(p vpath.Path) bool
	// Make returns what to show instead of content, nil for content itself.
	// content is not used afterwards.
	Make func(p vpath.Path, content []byte) []byte
	// MaxBytes is the size of the largest file that Make is asked about.
	MaxBytes int64
}

// standInMax bounds the contents that are kept, which do not count for the
// quota; what exceeds it is made again when it is asked for.
const (
	standInMaxFiles = 32
	standInMaxBytes = 256 << 20
)

// standIns are the contents made so far, in the order of their making.
type standIns struct {
	mu    sync.Mutex
	list  []*standIn
	bytes int64
}

// standIn is what Make said of one version of a file.
type standIn struct {
	path vpath.Path
	of   stat // the source's file
	fd   int  // a nameless file in work/; -1: the file shows itself
	is   stat // of fd
}

// mayStandIn reports whether something may stand for the entry e at p. It is asked
// at each look-up and takes no lock.
func (s *Stack) mayStandIn(p vpath.Path, e *entry) bool {
	o := s.o.StandIns
	return o != nil && !s.o.ReadOnly && e.part.origin == Source && e.st.isRegular() && !e.st.mounted && e.st.size <= o.MaxBytes && o.Wants(p)
}

// showing returns what stands for the entry e of the source at p, of which
// mayStandIn is true; nil for nothing. The caller holds standIns.mu.
func (s *Stack) showing(p vpath.Path, e *entry) *standIn {
	c := &s.standIns
	i := slices.IndexFunc(c.list, func(x *standIn) bool { return x.path == p })
	if i >= 0 && c.list[i].of.unchanged(&e.st) {
		return c.list[i].orNil()
	}
	if i >= 0 {
		c.dropLocked(i)
	}
	x, err := s.makeStandIn(p, e)
	if err != nil {
		return nil // unreadable, or changing: it is looked at again
	}
	c.list = append(c.list, x)
	c.bytes += x.is.size
	for len(c.list) > 1 && (len(c.list) > standInMaxFiles || c.bytes > standInMaxBytes) {
		c.dropLocked(0)
	}
	return x.orNil()
}

func (x *standIn) orNil() *standIn {
	if x.fd < 0 {
		return nil
	}
	return x
}

func (c *standIns) dropLocked(i int) {
	x := c.list[i]
	c.list = slices.Delete(c.list, i, i+1)
	c.bytes -= x.is.size
	if x.fd >= 0 {
		unix.Close(x.fd)
	}
}

// makeStandIn asks what to show of e. It fails if e changes meanwhile.
func (s *Stack) makeStandIn(p vpath.Path, e *entry) (*standIn, error) {
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
	x := &standIn{path: p, of: st, fd: -1}
	if content = s.o.StandIns.Make(p, content); content == nil {
		return x, nil
	}
	return x, x.store(s, content)
}

// store writes content to a nameless file with the times of the source's.
func (x *standIn) store(s *Stack, content []byte) error {
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

// standFor makes i, which describes e, describe what stands for it.
func (s *Stack) standFor(p vpath.Path, e *entry, i *Info) {
	if !s.mayStandIn(p, e) {
		return
	}
	s.standIns.mu.Lock()
	defer s.standIns.mu.Unlock()
	if x := s.showing(p, e); x != nil {
		x.dress(i)
	}
}

func (x *standIn) dress(i *Info) {
	i.Size, i.Blocks = x.is.size, x.is.blocks
	i.ID = FileID{x.is.dev, x.is.ino, x.is.birth}
}

// openStandIn opens what stands for e; ok is false if nothing does. The
// descriptor is the caller's.
func (s *Stack) openStandIn(p vpath.Path, e *entry) (fd int, x standIn, ok bool, err error) {
	if !s.mayStandIn(p, e) {
		return -1, standIn{}, false, nil
	}
	s.standIns.mu.Lock()
	defer s.standIns.mu.Unlock()
	found := s.showing(p, e)
	if found == nil {
		return -1, standIn{}, false, nil
	}
	fd, err = unix.FcntlInt(uintptr(found.fd), unix.F_DUPFD_CLOEXEC, 0)
	return fd, *found, err == nil, err
}

// openStandInFile is openOnce where something stands for e.
func (s *Stack) openStandInFile(p vpath.Path, e *entry) (*File, Info, error) {
	fd, x, ok, err := s.openStandIn(p, e)
	if !ok {
		return nil, Info{}, err
	}
	i := s.info(p, Source, &x.of)
	x.dress(&i)
	f := s.newFile(fd, p, Source, false)
	f.stands = &i
	return f, i, nil
}

// ForgetStandIns has the contents of StandIns made again and returns the paths
// that showed them: what Make answers has changed.
func (s *Stack) ForgetStandIns() []vpath.Path {
	c := &s.standIns
	c.mu.Lock()
	defer c.mu.Unlock()
	var paths []vpath.Path
	for len(c.list) > 0 {
		paths = append(paths, c.list[0].path)
		c.dropLocked(0)
	}
	return paths
}

// openShown opens what e shows for reading, and describes it with the times
// and the identity of e.
func (s *Stack) openShown(p vpath.Path, e entry) (int, stat, error) {
	fd, x, ok, err := s.openStandIn(p, &e)
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
