package fusefs

import (
	"container/list"
	"errors"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/view/layer"
)

// fdCache keeps the most recently used descriptors, at most one for each node. The kernel
// does not report when a file is closed, so only the cache closes them.
type fdCache struct {
	mu    sync.Mutex
	of    map[*node]*list.Element
	lru   list.List // of *handle, the latest first
	limit int
}

// handle is an open backing file. It is closed when it has left the cache and has no users.
type handle struct {
	file  *layer.File
	node  *node
	users int  // guarded by fdCache.mu
	gone  bool // out of the cache; guarded by fdCache.mu

	mu     sync.Mutex
	writer writer // the writer of the last reported change
	unsent int64  // bytes written since the last writeout
}

func (c *fdCache) init(limit int) {
	c.of = map[*node]*list.Element{}
	c.limit = limit
}

// get returns n's cached handle, or nil. With write it returns only a writable one. The
// caller releases it after use.
func (c *fdCache) get(n *node, write bool) *handle {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.of[n]
	if e == nil {
		return nil
	}
	h := e.Value.(*handle)
	if write && !h.file.Writable() {
		return nil
	}
	c.lru.MoveToFront(e)
	h.users++
	return h
}

func (c *fdCache) peek(n *node) *handle { return c.get(n, false) }

// put makes h the handle of its node and returns it in use. It replaces a previous handle.
func (c *fdCache) put(h *handle) *handle {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.of[h.node]; e != nil {
		c.removeLocked(e)
	}
	h.users++
	c.of[h.node] = c.lru.PushFront(h)
	for c.lru.Len() > c.limit {
		c.removeLocked(c.lru.Back())
	}
	return h
}

// retain adds a user to h, which must be in use.
func (c *fdCache) retain(h *handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.users++
}

// release removes a user.
func (c *fdCache) release(h *handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.users--
	if h.gone && h.users == 0 {
		h.file.Close()
	}
}

// drop removes n's handle, if any, from the cache.
func (c *fdCache) drop(n *node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.of[n]; e != nil {
		c.removeLocked(e)
	}
}

func (c *fdCache) removeLocked(e *list.Element) {
	h := c.lru.Remove(e).(*handle)
	delete(c.of, h.node)
	h.gone = true
	if h.users == 0 {
		h.file.Close()
	}
}

// readOnly returns the nodes with handles that are for reading only.
func (c *fdCache) readOnly() []*node {
	c.mu.Lock()
	defer c.mu.Unlock()
	var nodes []*node
	for n, e := range c.of {
		if !e.Value.(*handle).file.Writable() {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// clear removes all handles.
func (c *fdCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.lru.Len() > 0 {
		c.removeLocked(c.lru.Back())
	}
}

// stripe returns the lock that guards n's identity and descriptor.
func (fs *FS) stripe(n *node) *sync.Mutex {
	return &fs.stripes[n.id%uint64(len(fs.stripes))]
}

// handle returns an open handle on n's content. The caller releases it after use. Opening
// for writing copies a source file up. If the opened file is another file than n's, handle
// returns ESTALE.
func (fs *FS) handle(n *node, write bool) (*handle, fuse.Status) {
	if h := fs.cached(n, write); h != nil {
		return h, fuse.OK
	}
	if n.isDir() {
		return nil, fuse.EISDIR
	}
	fs.moves.RLock()
	defer fs.moves.RUnlock()
	mu := fs.stripe(n)
	mu.Lock()
	defer mu.Unlock()
	if h := fs.cached(n, write); h != nil {
		return h, fuse.OK
	}
	f, st := fs.open(n, write)
	if !st.Ok() {
		return nil, st
	}
	if !fs.serves(n, f) {
		f.Close()
		return nil, refused
	}
	return fs.fds.put(&handle{file: f, node: n}), fuse.OK
}

// open opens n's content. The caller holds fs.moves and n's stripe.
func (fs *FS) open(n *node, write bool) (*layer.File, fuse.Status) {
	if o := fs.orphan(n); o != nil {
		f, _, err := o.Open(write)
		return f, status(err)
	}
	p, ok := fs.nodes.path(n)
	if !ok {
		return nil, fuse.Status(unix.ESTALE)
	}
	if write && n.is(flagSource) {
		info, err := fs.o.Layer.Lookup(p)
		if err != nil {
			return nil, fs.fail("open", p, err)
		}
		if !fs.sameFile(n, &info) {
			fs.outdated(n)
			return nil, fuse.Status(unix.ESTALE)
		}
		fs.conn.BeginBlocking() // while the file is copied up
	}
	f, info, err := fs.o.Layer.Open(p, write)
	if err != nil {
		return nil, fs.fail("open", p, err)
	}
	if !fs.sameFile(n, &info) {
		f.Close()
		fs.outdated(n)
		return nil, fuse.Status(unix.ESTALE)
	}
	n.backing.Store(fs.fingerprint(info.ID))
	if info.Origin != layer.Source {
		n.clear(flagSource)
	}
	return f, fuse.OK
}

// change runs do on a handle for writing, and repeats it if the layer was frozen meanwhile.
func (fs *FS) change(n *node, do func(*handle) error) (*handle, fuse.Status) {
	for again := false; ; again = true {
		h, st := fs.handle(n, true)
		if !st.Ok() {
			return nil, st
		}
		err := do(h)
		fs.fds.release(h)
		if err == nil {
			return h, fuse.OK
		}
		if again || !errors.Is(err, unix.ESTALE) {
			return h, fs.fail("write", "", err)
		}
		fs.fds.drop(n)
	}
}
