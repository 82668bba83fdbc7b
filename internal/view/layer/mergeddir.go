package layer

import (
	"container/list"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/vpath"
)

// view is a directory of the view: the handles of the layers' directories
// that make it up, top-most first. A view is immutable.
type view struct {
	path   vpath.Path
	parts  []part
	sealed bool // a mount nested in the source: empty, nothing can be made

	born  time.Time // of the oldest look at the source in the chain from the root
	refs  int       // guarded by viewCache.mu
	stale bool      // not in the cache any more; guarded by viewCache.mu
}

// part is what one layer has of a directory.
type part struct {
	layer    int
	origin   Origin
	fd       int                                // O_PATH
	rights   rights                             // of a source directory
	sticky   bool                               // a source directory, in which others' names are not to be removed
	spelling *spelling                          // of a source directory
	absent   func(name string, isDir bool) bool // of a source directory, nil for nothing
}

// leavesOut reports whether an entry of a source directory counts as not being
// there.
func (pt *part) leavesOut(name string, isDir bool) bool {
	return pt.absent != nil && pt.absent(name, isDir)
}

// inTop reports whether the directory is in the delta.
func (v *view) inTop() bool { return len(v.parts) > 0 && v.parts[0].layer == top }

// maxViewFds bounds the handles that cached views hold; a quarter of what the
// process may have does too.
const maxViewFds = 512

func viewFdLimit() int {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return maxViewFds / 8
	}
	return int(max(8, min(lim.Cur/4, maxViewFds)))
}

// viewCache is a bounded LRU of views by path. An entry expires ttl after the
// oldest look at the source it rests on, so that directories which somebody
// moves in the source are noticed.
type viewCache struct {
	mu  sync.Mutex
	ttl time.Duration
	m   map[vpath.Path]*list.Element
	lru list.List // front is the most recent; values are *view
	fds int
	max int // of fds
}

func (c *viewCache) init(ttl time.Duration) {
	c.ttl, c.max = ttl, viewFdLimit()
	c.m = map[vpath.Path]*list.Element{}
	c.lru.Init()
}

// get returns the view of p with a reference, or nil.
func (c *viewCache) get(p vpath.Path) *view {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.m[p]
	if !ok {
		return nil
	}
	v := e.Value.(*view)
	if time.Since(v.born) >= c.ttl {
		c.dropLocked(e)
		return nil
	}
	c.lru.MoveToFront(e)
	v.refs++
	return v
}

// put caches v and returns it with a reference. If another caller was
// quicker, v is closed and the other's returned.
func (c *viewCache) put(v *view) *view {
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

func (c *viewCache) release(v *view) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v.refs--
	if v.refs == 0 && v.stale {
		v.closeParts()
	}
}

func (c *viewCache) dropLocked(e *list.Element) {
	v := c.lru.Remove(e).(*view)
	delete(c.m, v.path)
	c.fds -= len(v.parts)
	v.stale = true
	if v.refs == 0 {
		v.closeParts()
	}
}

// purge forgets the view of p and of everything below.
func (c *viewCache) purge(p vpath.Path) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.lru.Front(); e != nil; {
		next := e.Next()
		if e.Value.(*view).path.Within(p) {
			c.dropLocked(e)
		}
		e = next
	}
}

// forget drops the view of p alone.
func (c *viewCache) forget(p vpath.Path) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.m[p]; ok {
		c.dropLocked(e)
	}
}

func (v *view) closeParts() {
	for _, pt := range v.parts {
		unix.Close(pt.fd)
	}
	v.parts = nil
}

// view returns the directory p of the view; the caller releases it. The
// caller holds ns. Errors: ENOENT, ENOTDIR, those of openat2.
func (s *Stack) view(p vpath.Path) (*view, error) {
	if v := s.views.get(p); v != nil {
		return v, nil
	}
	if p.IsRoot() {
		v, err := s.rootView()
		if err != nil {
			return nil, err
		}
		return s.views.put(v), nil
	}
	parent, err := s.view(p.Dir())
	if err != nil {
		return nil, err
	}
	defer s.views.release(parent)
	v, err := s.descend(parent, p)
	if err != nil {
		return nil, err
	}
	return s.views.put(v), nil
}

func (s *Stack) rootView() (*view, error) {
	v := &view{path: vpath.Root, born: time.Now()}
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

// addPart appends fd, which then belongs to v or is closed.
func (s *Stack) addPart(v *view, n, fd int) error {
	pt := part{layer: n, origin: s.layers[n].origin, fd: fd}
	if pt.origin == Source {
		pt.spelling = s.spelling(v.path)
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

// descend opens the view of p, which lies directly in parent.
func (s *Stack) descend(parent *view, p vpath.Path) (*view, error) {
	v := &view{path: p, born: parent.born}
	name := p.Base()
	for _, pt := range parent.parts {
		var more bool
		var err error
		if pt.origin == Source {
			err = s.descendSource(v, pt, name)
		} else {
			more, err = s.descendDelta(v, pt, name)
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
		return nil, unix.ENOENT
	}
	return v, nil
}

// descendDelta adds a delta's part and says whether lower layers count too.
func (s *Stack) descendDelta(v *view, pt part, name string) (more bool, err error) {
	stored, _ := storedName(name)
	fd, err := openDir(pt.fd, stored)
	switch err {
	case nil:
		if err := s.addPart(v, pt.layer, fd); err != nil {
			return false, err
		}
		if opaque, err := exists(fd, opaqueMarker); err != nil || opaque {
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
	hidden, err := hasWhiteout(pt.fd, name)
	return !hidden, err
}

func (s *Stack) descendSource(v *view, pt part, name string) error {
	if vpath.IsOwnName(name) {
		return nil
	}
	if pt.rights.bits&maySearch == 0 {
		return unix.EACCES
	}
	if pt.leavesOut(name, true) {
		return nil // what is no directory there is left out by find, if it is
	}
	fd, err := openDir(pt.fd, name)
	switch err {
	case nil:
		return s.addSpelt(v, pt, name, fd)
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

// addSpelt adds the source's directory fd, found in pt, if it is spelt name.
func (s *Stack) addSpelt(v *view, pt part, name string, fd int) error {
	st, err := statFd(fd)
	if err == nil {
		var spelt bool
		if spelt, err = pt.spelling.spelt(pt.fd, name, &st); spelt && err == nil {
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
	return exists(fd, opaqueMarker)
}

// entry is a name found in one layer.
type entry struct {
	part   part
	stored string // the name in that layer
	st     stat

	covered bool // there is none, since a whiteout of the delta hides it
}

// isDots refuses what a vpath.Path never has, but would lead out of a
// directory if it had.
func isDots(name string) bool { return name == "" || name == "." || name == ".." }

// find looks name up in the layers of v from number from on. Errors: ENOENT,
// where entry.covered says whether the delta hides the name; those of statx.
func (s *Stack) find(v *view, name string, from int) (entry, error) {
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
		stored, _ := storedName(name)
		st, err := statAt(pt.fd, stored)
		if err == nil {
			return entry{part: pt, stored: stored, st: st}, nil
		}
		if err != unix.ENOENT {
			return entry{}, err
		}
		if i+1 == len(v.parts) {
			break // nothing that a whiteout could hide
		}
		hidden, err := hasWhiteout(pt.fd, name)
		if err != nil {
			return entry{}, err
		}
		if hidden {
			return entry{covered: pt.layer == top}, unix.ENOENT
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
	spelt, err := pt.spelling.spelt(pt.fd, name, &st)
	if err == nil && (!spelt || pt.leavesOut(name, st.isDir())) {
		err = unix.ENOENT
	}
	if err == nil {
		st.rights = s.rightsTo(pt.fd, name, &st)
	}
	return entry{part: pt, stored: name, st: st}, err
}
