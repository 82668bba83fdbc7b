package fusefs

import (
	"bytes"
	"encoding/binary"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// watcher notices changes that other processes make in the source, with one inotify watch
// for each directory that was looked into (docs/adr/0003).
type watcher struct {
	fs     *FS
	file   *os.File // nil: inotify is unavailable
	fd     int
	mu     sync.Mutex
	nodes  map[int32]*node
	limit  int
	remote bool // changes on other hosts come without an event
	runs   bool // run closes the file
	closed bool // no watch is added or ended any more

	// Used by run only. lost is true after events were lost: then everything is checked
	// again when no more events wait. skipped counts the reads since.
	lost    bool
	skipped int
	// ended are directories whose watch the kernel has ended although their name
	// still shows a directory: see renewEnded.
	ended []*node
}

// maxSkipped is after how many reads the check begins although events still wait: the
// removal of a large tree may send events for seconds.
const maxSkipped = 64

const (
	watchNames   = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO
	watchContent = unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB
	watchMask    = watchNames | watchContent | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK
)

// init opens inotify. Without inotify the kernel caches everything for a second only.
func (w *watcher) init(fs *FS, remote bool) {
	w.fs, w.remote = fs, remote
	w.nodes = map[int32]*node{}
	w.limit = watchShare(maxWatches()/2, fs.o.number, fs.o.views)
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return
	}
	w.fd, w.file = fd, os.NewFile(uintptr(fd), "inotify")
}

// watchShare returns how many of all watches a view may have. The first of several, the
// workspace, has most of them; the others share a quarter.
func watchShare(all, number, views int) int {
	switch {
	case views <= 1:
		return all
	case number == 1:
		return all - all/4
	}
	return all / 4 / (views - 1)
}

// maxWatches returns how many watches a user may have (inotify(7)).
func maxWatches() int {
	b, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches")
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n
}

// watch starts the watch of the source's directory at p, once, before the kernel gets any
// entry of it.
func (w *watcher) watch(n *node, p vpath.Path) {
	d := n.dir
	if d.tried.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if d.tried.Swap(true) || w.remote {
		return
	}
	dir, err := w.fs.o.Layer.OpenSourceDir(p)
	if err != nil {
		// The source has no such directory; if that changes, the watch of the parent
		// reports it.
		d.quiet.Store(notFound(err))
		return
	}
	defer dir.Close()
	if w.file == nil || w.closed || len(w.nodes) >= w.limit {
		return
	}
	wd, err := unix.InotifyAddWatch(w.fd, "/proc/self/fd/"+strconv.Itoa(int(dir.Fd())), watchMask)
	if err != nil {
		return
	}
	d.wd = int32(wd)
	w.nodes[d.wd] = n
	d.quiet.Store(true)
}

// unwatch ends the watch. The next look into the directory starts another.
func (w *watcher) unwatch(n *node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := n.dir
	d.quiet.Store(false)
	d.tried.Store(false)
	if d.wd == 0 || w.closed || w.nodes[d.wd] != n {
		return
	}
	_, _ = unix.InotifyRmWatch(w.fd, uint32(d.wd))
	delete(w.nodes, d.wd)
	d.wd = 0
}

// retry makes the next look into an unwatched directory try a watch again.
func (w *watcher) retry(n *node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.dir.wd == 0 {
		n.dir.quiet.Store(false)
		n.dir.tried.Store(false)
	}
}

// watched returns the watched directories.
func (w *watcher) watched() []*node {
	w.mu.Lock()
	defer w.mu.Unlock()
	nodes := make([]*node, 0, len(w.nodes))
	for _, n := range w.nodes {
		nodes = append(nodes, n)
	}
	return nodes
}

// close ends run. From then on directories are as those without a watch. It does not wait for the
// end of inotify, for which the kernel waits until no processor can use a watch: 10 ms and more
// (fsnotify_destroy_group in fs/notify/group.c).
func (w *watcher) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.file == nil || w.closed:
	case w.runs:
		_ = w.file.SetReadDeadline(time.Now())
	default:
		go w.file.Close()
	}
	w.closed = true
}

// run reads events until close.
func (w *watcher) run() {
	defer func() { go w.file.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return
		}
		w.events(buf[:n])
		w.renewEnded()
		if w.lost {
			w.catchUp()
		}
	}
}

// catchUp checks everything again after events were lost. That is slow if the kernel knows
// many entries. So catchUp returns while events wait: run reads and ignores them first.
func (w *watcher) catchUp() {
	waiting, err := unix.IoctlGetInt(w.fd, unix.TIOCINQ)
	if w.skipped++; err == nil && waiting > 0 && w.skipped < maxSkipped {
		return
	}
	w.lost, w.skipped = false, 0
	w.fs.invalidateAll()
	if w.fs.watched.Load() {
		w.fs.o.OnSource(Change{Path: vpath.Root, Kind: Lost})
	}
}

// renewEnded has the kernel look up directories again whose watch was that of a removed
// one. Somebody removed the directory and made another, which has the same inode number,
// before the event of the removal was read: so the node stayed, and what was looked up in
// the new directory meanwhile was not watched. A process that stands in the removed one
// has no working directory any more, as on the host.
func (w *watcher) renewEnded() {
	ended := w.ended
	w.ended = nil
	for _, n := range ended {
		w.fs.nodes.mu.RLock()
		parent, name := n.parent, n.name
		w.fs.nodes.mu.RUnlock()
		if parent == nil { // no name leads there
			continue
		}
		n.dir.changed()
		if !n.is(flagMountPoint) {
			w.fs.notify.entry(parent.id, name)
		}
		w.fs.notify.inode(n.id)
	}
}

// events handles a buffer of struct inotify_event.
func (w *watcher) events(b []byte) {
	for len(b) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(b))
		mask := binary.NativeEndian.Uint32(b[4:])
		size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		name, _, _ := bytes.Cut(b[unix.SizeofInotifyEvent:size], []byte{0})
		b = b[size:]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			w.lost = true
			continue
		}
		w.mu.Lock()
		n := w.nodes[wd]
		w.mu.Unlock()
		switch {
		case n == nil:
		case mask&unix.IN_IGNORED != 0:
			w.unwatch(n)
			w.ended = append(w.ended, n)
		case w.lost:
		case len(name) == 0:
			w.fs.notify.inode(n.id)
		default:
			w.fs.sourceChanged(n, string(name), mask)
		}
	}
}

// sourceChanged handles an event for name in the source's directory.
func (fs *FS) sourceChanged(parent *node, name string, mask uint32) {
	fs.moves.RLock()
	defer fs.moves.RUnlock()
	p, ok := fs.nodes.path(parent)
	if !ok {
		return
	}
	d := fs.decide(parent, p, name)
	if d.Permission == policy.None && !(d.Traversable && mask&unix.IN_ISDIR != 0) {
		return // hidden, so nothing is cached of it
	}
	if fs.hasOwn(p, name) {
		return // an own entry replaces it in the view
	}
	child := fs.nodes.child(parent, name)
	if mask&watchNames != 0 || d.Transform.Redact != policy.NoFormat {
		fs.entryChanged(parent, p, name, child, mask)
	} else if child != nil && child.is(flagSource) {
		fs.notify.inode(child.id)
	}
	if fs.watched.Load() {
		fs.reportSource(p.Child(name), d, child, mask)
	}
}

// entryChanged handles a name that was added or removed, or that names another file now.
func (fs *FS) entryChanged(parent *node, p vpath.Path, name string, child *node, mask uint32) {
	p = p.Child(name)
	isDir := child != nil && child.isDir()
	if mask&unix.IN_ISDIR != 0 || isDir {
		fs.o.Layer.Invalidate(p)
	}
	parent.dir.changed()
	stays, merged := fs.stays(child, p)
	switch {
	case !isDir, stays && !merged:
	case !stays && mask&unix.IN_DELETE != 0:
		// The directory was empty, because its entries were removed before. A search among
		// all watches would make the removal of a large tree quadratic.
		fs.watcher.unwatch(child)
	default:
		fs.unwatchBelow(child)
	}
	switch {
	case merged: // the delta's part of the directory remains
		fs.invalidateBelow(p)
	case !stays:
		fs.notify.entry(parent.id, name)
	}
	fs.notify.inode(parent.id)
	if child != nil {
		fs.notify.inode(child.id)
	}
}

// stays reports whether n is a directory that is still at p, and whether the delta has a
// part of it.
func (fs *FS) stays(n *node, p vpath.Path) (stays, merged bool) {
	if n == nil || !n.isDir() {
		return false, false
	}
	info, err := fs.o.Layer.Lookup(p)
	if err != nil || !info.IsDir() {
		return false, false
	}
	return fs.sameFile(n, &info), info.Origin != layer.Source
}

// Invalidate makes the view show the present state at and below the paths, after a change
// to the layers or the source that did not come through the mount. It returns when the
// kernel has dropped what it cached. Do not call Invalidate from OnDenial or OnChange.
func (fs *FS) Invalidate(paths ...vpath.Path) {
	fs.o.Layer.Invalidate(paths...)
	fs.invalidate(paths...)
	fs.notify.barrier()
}

// nearestKnown returns p or, if the kernel does not know its directory, the ancestor that
// the kernel may have cached as absent.
func (fs *FS) nearestKnown(p vpath.Path) vpath.Path {
	for fs.nodeAt(p.Dir()) == nil {
		p = p.Dir()
	}
	return p
}

func (fs *FS) invalidate(roots ...vpath.Path) {
	fs.moves.RLock()
	defer fs.moves.RUnlock()
	roots = slices.Clone(roots)
	for i, root := range roots {
		roots[i] = fs.nearestKnown(root)
	}
	fs.invalidateBelow(roots...)
	for _, root := range roots {
		parent := fs.nodeAt(root.Dir())
		if parent == nil || root.IsRoot() {
			continue
		}
		parent.dir.changed()
		fs.lookAgain(parent, root.Base())
		fs.notify.inode(parent.id)
	}
}

// invalidateBelow drops what is cached of the source at and below the roots. The caller
// holds fs.moves. It visits all nodes at most once, because there may be a million, and as
// many roots.
func (fs *FS) invalidateBelow(roots ...vpath.Path) {
	dirs := map[vpath.Path]bool{}
	for _, root := range roots {
		if fs.nodeAt(root) != nil {
			dirs[root] = true
		} else if parent := fs.nodeAt(root.Dir()); parent != nil {
			if n := fs.nodes.child(parent, root.Base()); n != nil {
				fs.invalidateNode(n, root)
			}
		}
	}
	if len(dirs) == 0 {
		return
	}
	for _, n := range fs.nodes.all() {
		if p, ok := fs.nodes.path(n); ok && withinAny(p, dirs) {
			fs.invalidateNode(n, p)
		}
	}
}

func withinAny(p vpath.Path, dirs map[vpath.Path]bool) bool {
	for a := range p.Ancestors() {
		if dirs[a] {
			return true
		}
	}
	return dirs[p]
}

// invalidateNode drops what is cached of the source's entry at p.
func (fs *FS) invalidateNode(n *node, p vpath.Path) {
	fs.nodes.mu.RLock()
	parent, name := n.parent, n.name
	fs.nodes.mu.RUnlock()
	if n.isDir() {
		fs.invalidateDir(n, p)
	}
	if stays, _ := fs.stays(n, p); parent != nil && !stays {
		if n.isDir() {
			fs.watcher.unwatch(n) // the event may be lost
		}
		fs.notify.entry(parent.id, name)
	}
	if !n.isDir() {
		fs.fds.drop(n)
		n.backing.Store(0)
		n.shown.Store(0)
	}
	fs.notify.inode(n.id)
}

// invalidateDir makes the kernel forget that names were absent if they exist now.
func (fs *FS) invalidateDir(n *node, p vpath.Path) {
	fs.watcher.retry(n)
	n.dir.changed()
	entries, err := fs.o.Layer.ReadDir(p)
	if err != nil {
		return
	}
	for _, e := range entries {
		fs.lookAgain(n, e.Name)
	}
}

// nodeAt returns the node of the directory p if the kernel knows it.
func (fs *FS) nodeAt(p vpath.Path) *node {
	fs.nodes.mu.RLock()
	defer fs.nodes.mu.RUnlock()
	n := fs.root
	for name := range p.Elements() {
		if n = fs.nodes.childLocked(n, name); n == nil || !n.isDir() {
			return nil
		}
	}
	return n
}

// invalidateAll is Invalidate for everything, after events were lost.
func (fs *FS) invalidateAll() {
	fs.o.Layer.Invalidate(vpath.Root)
	fs.invalidate(vpath.Root)
}
