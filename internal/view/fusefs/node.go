package fusefs

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// node is what the kernel knows by one number. There may be a million, so a node has only
// 80 bytes. The fields that few nodes need are in dir and in table.extras.
//
// A node is a path: two names of one source file are two nodes, so that the pages of the
// stricter one never show through the other. Only hard links made in the sandbox share a
// node. The number of a node has the number of its view in the high bits, and is not reused
// before many others.
type node struct {
	parent *node // nil: the root, or no name; guarded by table.mu
	name   string
	id     uint64
	known  uint64 // look-ups minus FORGETs; guarded by table.mu
	next   *node  // in the same bucket of parent.dir; guarded by table.mu
	dir    *dir   // nil if it is not a directory

	backing atomic.Uint64 // fingerprint of the layer.FileID behind it, for a directory of the source's; 0: take the next one seen
	shown   atomic.Uint64 // fingerprint of the source file's state that the kernel knows; 0: none
	verdict atomic.Uint32 // cached permission, see FS.permission
	flags   atomic.Uint32
}

// Flags of a node; the low bits hold the type, S_IFMT>>12.
const (
	typeMask        = 0xf
	flagSource      = 1 << 4  // backed by the source, unchanged
	flagNameless    = 1 << 5  // it has lost its name
	flagExtra       = 1 << 6  // it has an entry in table.extras
	flagTouched     = 1 << 7  // content was read or changed: the prefetcher must not store it
	flagStored      = 1 << 8  // the prefetcher has stored the content, or will
	flagOverwritten = 1 << 9  // content was changed, and the stored pages are dropped
	flagMountPoint  = 1 << 10 // one of layer.Options.MountPoints: it stays whatever directory is there

	storedPagesShift = 12 // the bits above it hold how many pages were stored
)

func (n *node) isRoot() bool     { return uint32(n.id) == fuse.FUSE_ROOT_ID }
func (n *node) isDir() bool      { return n.dir != nil }
func (n *node) isRegular() bool  { return n.flags.Load()&typeMask == unix.S_IFREG>>12 }
func (n *node) is(f uint32) bool { return n.flags.Load()&f != 0 }
func (n *node) set(f uint32)     { n.flags.Or(f) }
func (n *node) clear(f uint32)   { n.flags.And(^f) }

// extra has the fields that only few nodes need.
type extra struct {
	orphan *layer.Orphan // the content of a node without a name
	links  []place       // names in addition to node.parent and node.name
	last   vpath.Path    // the last path of a nameless node; "" if it never had a name
	file   fileKey       // its key in table.files, if any
}

// place is a name in a directory.
type place struct {
	parent *node
	name   string
}

// table has the nodes, by number and by place.
type table struct {
	mu     sync.RWMutex
	view   uint64  // of the view among those of the connection
	slots  []*node // by the low half of the number
	free   []uint32
	made   uint32            // nodes ever made: in the high half of the number
	links  map[place]*node   // names in addition to a node's first
	files  map[fileKey]*node // files of several names, by backing file
	extras map[*node]*extra
	dead   []*node // collected; their descriptors and orphans are not released yet
	seed   maphash.Seed
}

// fileKey finds the node of a file that has several names.
type fileKey = layer.FileID

// A node's number is view<<viewShift | made<<madeShift | slot. The root has slot
// fuse.FUSE_ROOT_ID, so that the root of view 0 is the root of its connection.
const (
	viewShift = 58
	madeShift = 32
	madeMask  = 1<<(viewShift-madeShift) - 1
	maxViews  = 1 << (64 - viewShift)
)

func (t *table) init(view uint64) *node {
	t.view = view
	t.seed = maphash.MakeSeed()
	t.links = map[place]*node{}
	t.files = map[fileKey]*node{}
	t.extras = map[*node]*extra{}
	root := &node{id: view<<viewShift | fuse.FUSE_ROOT_ID, known: 1, dir: &dir{}}
	root.flags.Store(unix.S_IFDIR >> 12)
	t.slots = []*node{nil, root}
	return root
}

// get returns the node with the number id, or nil if the kernel has forgotten it.
func (t *table) get(id uint64) *node {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if slot := id & 0xffffffff; slot < uint64(len(t.slots)) {
		if n := t.slots[slot]; n != nil && n.id == id {
			return n
		}
	}
	return nil
}

// bucket returns the list of nodes that has the first name in the directory d, which has buckets.
func (t *table) bucket(d *dir, name string) **node {
	return &d.buckets[maphash.String(t.seed, name)&uint64(len(d.buckets)-1)]
}

func (t *table) childLocked(parent *node, name string) *node {
	if d := parent.dir; d != nil && len(d.buckets) > 0 {
		for n := *t.bucket(d, name); n != nil; n = n.next {
			if n.name == name {
				return n
			}
		}
	}
	if len(t.links) > 0 {
		return t.links[place{parent, name}]
	}
	return nil
}

// child returns the node at name in parent, or nil.
func (t *table) child(parent *node, name string) *node {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.childLocked(parent, name)
}

// addLocked makes a node of the given type without a name.
func (t *table) addLocked(mode uint32) *node {
	n := &node{}
	n.flags.Store(mode & unix.S_IFMT >> 12)
	if mode&unix.S_IFMT == unix.S_IFDIR {
		n.dir = &dir{}
	}
	t.made++
	if last := len(t.free) - 1; last >= 0 {
		n.id = uint64(t.free[last])
		t.free = t.free[:last]
		t.slots[n.id] = n
	} else {
		n.id = uint64(len(t.slots))
		t.slots = append(t.slots, n)
	}
	n.id |= t.view<<viewShift | uint64(t.made)&madeMask<<madeShift
	return n
}

// placeLocked gives n its first name.
func (t *table) placeLocked(n, parent *node, name string) {
	d := parent.dir
	n.parent, n.name = parent, name
	d.kids++
	if int(d.kids) > len(d.buckets) {
		t.growLocked(d)
	}
	at := t.bucket(d, name)
	n.next, *at = *at, n
	n.clear(flagNameless)
}

// takeLocked removes n's first name.
func (t *table) takeLocked(n *node) {
	at := t.bucket(n.parent.dir, n.name)
	for *at != n {
		at = &(*at).next
	}
	*at, n.next = n.next, nil
	parent := n.parent
	n.parent = nil
	t.unpinLocked(parent)
}

func (t *table) growLocked(d *dir) {
	old := d.buckets
	d.buckets = make([]*node, max(2*len(old), 1))
	for _, n := range old {
		for n != nil {
			next := n.next
			at := t.bucket(d, n.name)
			n.next, *at = *at, n
			n = next
		}
	}
}

// unpinLocked decrements a directory's count of children in the table.
func (t *table) unpinLocked(parent *node) {
	if parent.dir.kids--; parent.dir.kids == 0 {
		parent.dir.buckets = nil
	}
	t.collectLocked(parent)
}

// collectLocked removes a node that neither the kernel nor a child needs.
func (t *table) collectLocked(n *node) {
	if n.known > 0 || n.isDir() && n.dir.kids > 0 || t.slots[uint32(n.id)] != n {
		return
	}
	t.slots[uint32(n.id)] = nil
	t.free = append(t.free, uint32(n.id))
	t.dead = append(t.dead, n)
	if x := t.extras[n]; x != nil {
		for _, l := range x.links {
			delete(t.links, l)
			t.unpinLocked(l.parent)
		}
		x.links = nil
		if t.files[x.file] == n {
			delete(t.files, x.file)
		}
	}
	if n.parent != nil {
		t.takeLocked(n)
	}
}

// takeDeadLocked returns and removes the collected nodes, with their orphans.
func (t *table) takeDeadLocked() (dead []*node, orphans []*layer.Orphan) {
	for _, n := range t.dead {
		if x := t.extras[n]; x != nil {
			if x.orphan != nil {
				orphans = append(orphans, x.orphan)
			}
			delete(t.extras, n)
		}
	}
	dead, t.dead = t.dead, nil
	return dead, orphans
}

func (t *table) extraLocked(n *node) *extra {
	x := t.extras[n]
	if x == nil {
		x = &extra{}
		t.extras[n] = x
		n.set(flagExtra)
	}
	return x
}

// extraOfLocked returns n's extra to read it. It is empty if n has none.
func (t *table) extraOfLocked(n *node) *extra {
	if n.is(flagExtra) {
		if x := t.extras[n]; x != nil {
			return x
		}
	}
	return &noExtra
}

var noExtra extra

// linkLocked gives n another name.
func (t *table) linkLocked(n, parent *node, name string) {
	x := t.extraLocked(n)
	l := place{parent, name}
	x.links = append(x.links, l)
	t.links[l] = n
	parent.dir.kids++
}

// dropNameLocked removes n's name in parent and reports whether it was the last one.
func (t *table) dropNameLocked(n, parent *node, name string) (last bool) {
	x := t.extras[n]
	if n.parent != parent || n.name != name {
		l := place{parent, name}
		for i := range x.links {
			if x.links[i] == l {
				x.links = append(x.links[:i], x.links[i+1:]...)
				break
			}
		}
		delete(t.links, l)
		t.unpinLocked(parent)
		return false
	}
	t.takeLocked(n)
	if x == nil || len(x.links) == 0 {
		n.set(flagNameless)
		return true
	}
	next := x.links[0]
	x.links = x.links[1:]
	delete(t.links, next)
	t.placeLocked(n, next.parent, next.name)
	t.unpinLocked(next.parent)
	return false
}

// settleLocked gives n a name, which is its first if it has no other.
func (t *table) settleLocked(n, parent *node, name string) {
	if n.parent == nil {
		t.placeLocked(n, parent, name)
	} else {
		t.linkLocked(n, parent, name)
	}
	n.verdict.Store(0)
}

// pathLocked returns n's path. It returns false if n or a directory above it has lost its
// name.
func (t *table) pathLocked(n *node) (vpath.Path, bool) {
	size := 0
	for at := n; at.parent != nil; at = at.parent {
		size += 1 + len(at.name)
	}
	if size == 0 {
		return vpath.Root, n.isRoot()
	}
	b := make([]byte, size)
	at := n
	for ; at.parent != nil; at = at.parent {
		size -= len(at.name)
		copy(b[size:], at.name)
		size--
		b[size] = '/'
	}
	return vpath.Path(unsafe.String(&b[0], len(b))), at.isRoot()
}

// path returns n's path, see pathLocked.
func (t *table) path(n *node) (vpath.Path, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.pathLocked(n)
}

// extra returns a copy of n's extra.
func (t *table) extra(n *node) extra {
	if !n.is(flagExtra) {
		return extra{}
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if x := t.extras[n]; x != nil {
		return extra{orphan: x.orphan, links: append([]place(nil), x.links...), last: x.last, file: x.file}
	}
	return extra{}
}

// withinLocked reports whether n is dir or is below it by its first name.
func (t *table) withinLocked(n, dir *node) bool {
	for ; n != nil; n = n.parent {
		if n == dir {
			return true
		}
	}
	return false
}

// all returns every node.
func (t *table) all() []*node {
	t.mu.RLock()
	defer t.mu.RUnlock()
	nodes := make([]*node, 0, len(t.slots))
	for _, n := range t.slots {
		if n != nil {
			nodes = append(nodes, n)
		}
	}
	return nodes
}
