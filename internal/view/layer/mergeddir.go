package layer

import (
	"container/list"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// mergedDir is a directory as the stack shows it: the handles of the layers'
// directories that it consists of, the topmost first. It is immutable.
type mergedDir struct {
	path   vpath.Path
	parts  []part
	sealed bool // a mount nested in the source: empty and read-only

	readAt time.Time // when the source was first read for this directory or a parent of it
	refs   int       // guarded by dirCache.mu
	stale  bool      // not in the cache any more; guarded by dirCache.mu
}

// part is the directory of one layer in a mergedDir.
type part struct {
	layer    int
	origin   Origin
	fd       int                                // O_PATH
	rights   rights                             // of a source directory
	sticky   bool                               // a source directory with the sticky bit, see mayRemove
	casefold *casefold                          // of a source directory
	absent   func(name string, isDir bool) bool // of a source directory, nil for nothing
}

// leavesOut reports whether the view hides an entry of a source directory, see
// Options.Absent.
func (pt *part) leavesOut(name string, isDir bool) bool {
	return pt.absent != nil && pt.absent(name, isDir)
}

// inTop reports whether the directory is in the delta.
func (v *mergedDir) inTop() bool { return len(v.parts) > 0 && v.parts[0].layer == top }

// maxDirFds is the maximum number of handles of cached directories. A quarter of the
// process's descriptor limit is the other bound.
const maxDirFds = 512

func dirFdLimit(share int) int {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return maxDirFds / 8
	}
	return int(max(8, min(lim.Cur/4, maxDirFds)/uint64(max(share, 1))))
}

// dirCache is a bounded LRU of directories by path. An entry expires ttl after its readAt,
// so that the stack notices directories that were moved in the source.
type dirCache struct {
	mu  sync.Mutex
	ttl time.Duration
	m   map[vpath.Path]*list.Element
	lru list.List // front is the most recent; values are *mergedDir
	fds int
	max int // of fds
}

func (c *dirCache) init(ttl time.Duration, share int) {
	c.ttl, c.max = ttl, dirFdLimit(share)
	c.m = map[vpath.Path]*list.Element{}
	c.lru.Init()
}

// get returns the directory p with a reference, or nil.
func (c *dirCache) get(p vpath.Path) *mergedDir {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.m[p]
	if !ok {
		return nil
	}
	v := e.Value.(*mergedDir)
	if time.Since(v.readAt) >= c.ttl {
		c.dropLocked(e)
		return nil
	}
	c.lru.MoveToFront(e)
	v.refs++
	return v
}

// put caches v and returns it with a reference. If another caller has cached the directory
// already, put closes v and returns the cached one.
func (c *dirCache) put(v *mergedDir) *mergedDir {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.m[v.path]; ok {
		c.dropLocked(e)
	}
	v.refs = 1
	if c.ttl == 0 {
		v.stale = true
		return v
	}
	c.m[v.path] = c.lru.PushFront(v)
	c.fds += len(v.parts)
	for c.fds > c.max && c.lru.Len() > 1 {
		c.dropLocked(c.lru.Back())
	}
	return v
}

func (c *dirCache) release(v *mergedDir) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v.refs--
	if v.refs == 0 && v.stale {
		v.closeParts()
	}
}

func (c *dirCache) dropLocked(e *list.Element) {
	v := c.lru.Remove(e).(*mergedDir)
	delete(c.m, v.path)
	c.fds -= len(v.parts)
	v.stale = true
	if v.refs == 0 {
		v.closeParts()
	}
}

// purge drops the directory p and everything below from the cache.
func (c *dirCache) purge(p vpath.Path) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.lru.Front(); e != nil; {
		next := e.Next()
		if e.Value.(*mergedDir).path.Within(p) {
			c.dropLocked(e)
		}
		e = next
	}
}

// forget drops the directory p alone from the cache.
func (c *dirCache) forget(p vpath.Path) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.m[p]; ok {
		c.dropLocked(e)
	}
}

func (v *mergedDir) closeParts() {
	for _, pt := range v.parts {
		unix.Close(pt.fd)
	}
	v.parts = nil
}

// mergedDir returns the directory p; the caller releases it. The
// caller holds ns. Errors: ENOENT, ENOTDIR, those of openat2.
func (s *Stack) mergedDir(p vpath.Path) (*mergedDir, error) {
	if v := s.dirs.get(p); v != nil {
		return v, nil
	}
	if p.IsRoot() {
		v, err := s.mergedRoot()
		if err != nil {
			return nil, err
		}
		return s.dirs.put(v), nil
	}
	parent, err := s.mergedDir(p.Dir())
	if err != nil {
		return nil, err
	}
	defer s.dirs.release(parent)
	v, err := s.descend(parent, p)
	if err != nil {
		return nil, err
	}
	return s.dirs.put(v), nil
}

func (s *Stack) mergedRoot() (*mergedDir, error) {
	v := &mergedDir{path: vpath.Root, readAt: time.Now()}
	for n, l := range s.layers {
		fd, err := unix.FcntlInt(uintptr(l.root), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			v.closeParts()
			return nil, err
		}
		if err := s.addPart(v, n, fd); err != nil {
			v.closeParts()
			return nil, err
		}
	}
	return v, nil
}

// addPart appends fd to v, which then owns it. On an error it closes fd.
func (s *Stack) addPart(v *mergedDir, n, fd int) error {
	pt := part{layer: n, origin: s.layers[n].origin, fd: fd}
	if pt.origin == Source {
		pt.casefold = s.casefold(v.path)
		if absent := s.o.Absent; absent != nil {
			pt.absent = func(name string, isDir bool) bool { return absent(v.path.Child(name), isDir) }
		}
	}
	pt.rights.bits = allRights
	if s.o.User != nil && pt.origin == Source {
		st, err := statFd(fd)
		if err != nil {
			unix.Close(fd)
			return err
		}
		pt.rights = s.rightsTo(fd, "", &st)
		pt.sticky = st.mode&unix.S_ISVTX != 0
	}
	v.parts = append(v.parts, pt)
	return nil
}

// descend opens the directory p, which lies directly in parent.
func (s *Stack) descend(parent *mergedDir, p vpath.Path) (*mergedDir, error) {
	v := &mergedDir{path: p, readAt: parent.readAt}
	name := p.Base()
	for _, pt := range parent.parts {
		var more bool
		var err error
		if pt.origin == Source {
			err = s.descendSource(v, pt, name)
		} else {
			more, err = s.descendDelta(v, parent.path, pt, name)
		}
		if err != nil {
			v.closeParts()
			return nil, err
		}
		if !more {
			break
		}
	}
	if len(v.parts) == 0 && !v.sealed {
		if !s.isMountPoint(p) {
			return nil, unix.ENOENT
		}
		v.sealed = true
	}
	return v, nil
}

// descendDelta adds a delta's part, found as name in pt of the directory dir. more reports whether
// lower layers count too.
func (s *Stack) descendDelta(v *mergedDir, dir vpath.Path, pt part, name string) (more bool, err error) {
	stored, _ := nameenc.Entry(name)
	fd, err := -1, error(unix.ENOENT)
	if !s.lacks(dir, &pt, stored) {
		fd, err = openDir(pt.fd, stored)
	}
	switch err {
	case nil:
		if err := s.addPart(v, pt.layer, fd); err != nil {
			return false, err
		}
		if opaque, err := exists(fd, nameenc.OpaqueMarker); err != nil || opaque {
			return false, err
		}
	case unix.ENOENT:
	case unix.ENOTDIR, unix.ELOOP:
		if len(v.parts) == 0 {
			return false, unix.ENOTDIR
		}
		return false, nil
	default:
		return false, err
	}
	hidden, err := s.isHidden(dir, &pt, name)
	return !hidden, err
}

func (s *Stack) descendSource(v *mergedDir, pt part, name string) error {
	if vpath.IsOwnName(name) {
		return nil
	}
	if pt.rights.bits&maySearch == 0 {
		return unix.EACCES
	}
	if pt.leavesOut(name, true) {
		return nil // find decides whether the view hides an entry that is not a directory
	}
	fd, err := openDir(pt.fd, name)
	switch err {
	case nil:
		return s.addIfExact(v, pt, name, fd)
	case unix.EXDEV:
		v.sealed = len(v.parts) == 0
		return nil
	case unix.ENOENT:
		return nil
	case unix.ENOTDIR, unix.ELOOP:
		if len(v.parts) == 0 {
			return unix.ENOTDIR
		}
		return nil
	}
	return err
}

// addIfExact adds the source's directory fd, found in pt as name, if name is its exact
// name.
func (s *Stack) addIfExact(v *mergedDir, pt part, name string, fd int) error {
	st, err := statFd(fd)
	if err == nil {
		var exact bool
		if exact, err = pt.casefold.isExact(pt.fd, name, &st); exact && err == nil {
			return s.addPart(v, pt.layer, fd)
		}
	}
	unix.Close(fd)
	return err
}

// isOpaque reports whether the directory name of the delta directory dir holds
// the opaque marker.
func isOpaque(dir int, name string) (bool, error) {
	fd, err := openDir(dir, name)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	return exists(fd, nameenc.OpaqueMarker)
}

// entry is a name found in one layer.
type entry struct {
	part   part
	stored string // the name in that layer
	st     stat

	// Not found, because a whiteout hides the name: covered if it is one of the delta, hidden
	// also if it is one of a frozen layer.
	covered, hidden bool
}

// isDots reports whether name would not name an entry of its directory. A vpath.Path has no
// such element.
func isDots(name string) bool { return name == "" || name == "." || name == ".." }

// find looks name up in the layers of v, beginning with layer number from, and among the
// mount points. Errors: ENOENT, and then entry.covered reports whether the delta hides the
// name; those of statx.
func (s *Stack) find(v *mergedDir, name string, from int) (entry, error) {
	e, err := s.findInLayers(v, name, from)
	if err == unix.ENOENT && len(s.o.MountPoints) > 0 && s.isMountPoint(v.path.Child(name)) {
		return s.absentMountPoint(name), nil
	}
	return e, err
}

func (s *Stack) findInLayers(v *mergedDir, name string, from int) (entry, error) {
	if isDots(name) {
		return entry{}, unix.EINVAL
	}
	for i, pt := range v.parts {
		if pt.layer < from {
			continue
		}
		if pt.origin == Source {
			if vpath.IsOwnName(name) {
				break
			}
			if pt.rights.bits&maySearch == 0 {
				return entry{}, unix.EACCES
			}
			return s.findSource(pt, name)
		}
		stored, _ := nameenc.Entry(name)
		if !s.lacks(v.path, &pt, stored) {
			st, err := statAt(pt.fd, stored)
			if err == nil {
				return entry{part: pt, stored: stored, st: st}, nil
			}
			if err != unix.ENOENT {
				return entry{}, err
			}
		}
		if i+1 == len(v.parts) {
			break // a whiteout would hide nothing
		}
		hidden, err := s.isHidden(v.path, &pt, name)
		if err != nil {
			return entry{}, err
		}
		if hidden {
			return entry{covered: pt.layer == top, hidden: true}, unix.ENOENT
		}
	}
	return entry{}, unix.ENOENT
}

// findSource is find in a directory of the source.
func (s *Stack) findSource(pt part, name string) (entry, error) {
	st, err := statAt(pt.fd, name)
	if err != nil {
		return entry{}, err
	}
	exact, err := pt.casefold.isExact(pt.fd, name, &st)
	if err == nil && (!exact || pt.leavesOut(name, st.isDir()) || s.o.Plain && !isPlain(st.kind())) {
		err = unix.ENOENT
	}
	if err == nil {
		st.rights = s.rightsTo(pt.fd, name, &st)
	}
	return entry{part: pt, stored: name, st: st}, err
}
