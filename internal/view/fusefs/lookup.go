package fusefs

import (
	"slices"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/fuseconn"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/uses"
)

// reserved reports whether name is fuseconn.ReservedName in the root.
func reserved(parent *node, name string) bool {
	return parent.id == fuse.FUSE_ROOT_ID && name == fuseconn.ReservedName
}

// dirAt returns a directory's node and path. The caller holds fs.moves.
func (fs *FS) dirAt(id uint64) (*node, vpath.Path, fuse.Status) {
	n := fs.nodes.get(id)
	switch {
	case n == nil:
		return nil, "", fuse.Status(unix.ESTALE)
	case !n.isDir():
		return nil, "", fuse.ENOTDIR
	}
	p, ok := fs.nodes.path(n)
	if !ok {
		return nil, "", fuse.ENOENT // removed, although some process still uses it
	}
	return n, p, fuse.OK
}

// Lookup finds a name. At a path with permission none it finds only an own entry and does
// not look at the source. The kernel does not cache that reply, so that every attempt is
// noticed.
func (fs *FS) Lookup(_ <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	fs.stats.count(opLookup)
	fs.moves.RLock()
	defer fs.moves.RUnlock()
	parent, p, st := fs.dirAt(in.NodeId)
	if !st.Ok() {
		return st
	}
	if len(name) > vpath.NameMax {
		return fuse.Status(unix.ENAMETOOLONG)
	}
	state := fs.stateOf(parent, p)
	name, d := fs.keyOf(state, p, name)
	if d.Permission == policy.None && !d.Traversable {
		if !d.Own || fs.o.OnDenial == nil || !currentCall(in.Pid).makes() {
			fs.deny(denied{path: p.Child(name), d: d, caller: &in.Caller})
		}
		return absent
	}
	fs.watcher.watch(parent, p)
	n, info, st := fs.find(parent, p, name)
	switch {
	case st == fuse.ENOENT && !d.Transform.IsZero():
		return absent // a change of a content may make it visible
	case st == fuse.ENOENT && d.Permission != policy.None:
		return fs.negative(parent, out)
	case !st.Ok():
		return st
	case !visible(d, info.Mode):
		fs.forget(n, 1)
		fs.deny(denied{path: p.Child(name), d: d, caller: &in.Caller})
		return absent
	}
	fs.rule(n, state.Policy(), d)
	if fs.learning.Load() != nil { // before the path is built
		fs.used(p.Child(name), uses.Found, n.isDir(), in.Pid)
	}
	fs.fillEntry(n, parent, &info, out)
	return fuse.OK
}

// negative replies that a name is absent. The kernel may cache that if the policy would
// show the name.
func (fs *FS) negative(parent *node, out *fuse.EntryOut) fuse.Status {
	out.NodeId = 0
	out.EntryValid = brief
	if parent.dir.quiet.Load() {
		out.EntryValid = forever
	}
	return fuse.OK
}

// find looks name up in the layers and returns its node. It adds one to the node's look-up
// count.
func (fs *FS) find(parent *node, p vpath.Path, name string) (*node, layer.Info, fuse.Status) {
	n := fs.nodes.child(parent, name)
	if n != nil {
		mu := fs.stripe(n)
		mu.Lock()
		defer mu.Unlock()
	}
	info, err := fs.o.Layer.LookupIn(p, name)
	switch {
	case err == nil:
		return fs.bind(parent, name, &info), info, fuse.OK
	case !notFound(err):
		return nil, info, fs.fail("look up", p.Child(name), err)
	}
	if n != nil {
		fs.nodes.mu.Lock()
		defer fs.nodes.mu.Unlock()
		if fs.nodes.childLocked(parent, name) == n {
			fs.abandonLocked(n, parent, name)
		}
	}
	return nil, info, fuse.ENOENT
}

// bind returns the node of the entry that info describes, and adds one to its look-up
// count. If the name had a node of another file, that node loses the name.
func (fs *FS) bind(parent *node, name string, info *layer.Info) *node {
	t := &fs.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.childLocked(parent, name)
	if n != nil && !fs.sameNode(n, info) {
		fs.abandonLocked(n, parent, name)
		n = nil
	}
	if n == nil {
		n = fs.joinLocked(parent, name, info)
	}
	if !n.isDir() || info.Origin == layer.Source {
		n.backing.Store(fs.fingerprint(info.ID))
	}
	n.known++
	return n
}

// joinLocked returns the node for a name that the kernel does not know: a new node, or the
// node of a file that the kernel knows by another name.
func (fs *FS) joinLocked(parent *node, name string, info *layer.Info) *node {
	t := &fs.nodes
	several := info.Origin != layer.Source && info.Nlink > 1 && !isDir(info.Mode) && !info.Borrowed
	if several {
		if n := t.files[info.ID]; n != nil && n.parent != nil {
			t.linkLocked(n, parent, name)
			n.verdict.Store(0)
			return n
		}
	}
	n := t.addLocked(info.Mode)
	t.placeLocked(n, parent, name)
	if fs.isMountPointLocked(n) {
		n.set(flagMountPoint)
	}
	if several {
		fs.registerLocked(n, info.ID)
	}
	return n
}

// isMountPointLocked reports whether others mount on the directory n. If it became another
// node, the kernel would end the mount.
func (fs *FS) isMountPointLocked(n *node) bool {
	points := fs.o.Layer.MountPoints()
	if len(points) == 0 || !n.isDir() {
		return false
	}
	p, ok := fs.nodes.pathLocked(n)
	return ok && slices.Contains(points, p)
}

// registerLocked makes other names of n's file find n.
func (fs *FS) registerLocked(n *node, id layer.FileID) {
	fs.nodes.extraLocked(n).file = id
	fs.nodes.files[id] = n
}

// sameNode reports whether the entry that info describes has the type of n and, for a file
// of the source, is the same file.
func (fs *FS) sameNode(n *node, info *layer.Info) bool {
	return n.flags.Load()&typeMask == info.Mode&unix.S_IFMT>>12 && fs.sameFile(n, info)
}

// sameFile reports whether info describes the file, or the source's directory, behind n. It
// is always true for the delta, in which only this process replaces files, unless the content
// is another file's.
func (fs *FS) sameFile(n *node, info *layer.Info) bool {
	if n.isDir() != isDir(info.Mode) {
		return false
	}
	if !info.Borrowed && (info.Origin != layer.Source || !n.is(flagSource) || n.is(flagMountPoint)) {
		return true
	}
	b := n.backing.Load()
	return b == 0 || b == fs.fingerprint(info.ID)
}

// abandonLocked removes a name from a node after its file was replaced in the source.
func (fs *FS) abandonLocked(n, parent *node, name string) {
	p, ok := fs.nodes.pathLocked(parent)
	if fs.nodes.dropNameLocked(n, parent, name) && ok {
		fs.nodes.extraLocked(n).last = p.Child(name)
	}
}

// statNameless describes a node that has neither a name nor an orphan: a removed directory,
// or a file that was replaced in the source. Its open descriptor still works.
func (fs *FS) statNameless(n *node) (layer.Info, fuse.Status) {
	if n.isDir() {
		return n.dir.last(), fuse.OK
	}
	h := fs.fds.peek(n)
	if h == nil {
		return layer.Info{}, fuse.Status(unix.ESTALE)
	}
	defer fs.fds.release(h)
	info, err := h.file.Stat()
	info.Nlink = 0
	return info, status(err)
}

// last describes a removed directory with its last attributes.
func (d *dir) last() layer.Info {
	d.mu.Lock()
	defer d.mu.Unlock()
	return layer.Info{Mode: d.mode, Ino: d.ino, Origin: layer.Delta}
}

// outdated makes the kernel look n's name up again.
func (fs *FS) outdated(n *node) {
	fs.nodes.mu.RLock()
	parent, name := n.parent, n.name
	fs.nodes.mu.RUnlock()
	if parent != nil && !n.isDir() {
		fs.notify.entry(parent.id, name)
	}
	fs.notify.inode(n.id)
}

// Forget drops a node that the kernel no longer needs.
func (fs *FS) Forget(id, count uint64) {
	if n := fs.nodes.get(id); n != nil && !n.isRoot() {
		fs.forget(n, count)
	}
}

func (fs *FS) forget(n *node, count uint64) {
	t := &fs.nodes
	t.mu.Lock()
	n.known -= min(count, n.known)
	t.collectLocked(n)
	dead, orphans := t.takeDeadLocked()
	t.mu.Unlock()
	for _, n := range dead {
		fs.fds.drop(n)
		fs.once.drop(n, false, policy.None)
		if n.isDir() {
			fs.watcher.unwatch(n)
		}
	}
	for _, o := range orphans {
		o.Forget()
	}
}
