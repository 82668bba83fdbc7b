package fusefs

import (
	"hash/maphash"
	"slices"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

const (
	// forever is the time-out of what changes only with a notification, in seconds. It is
	// far from an overflow.
	forever = 1 << 30
	// brief is the time-out of what may change without an event, in seconds.
	brief = 1

	// Each directory shows the same size, because the real size depends on hidden names.
	dirSize   = 4096
	dirBlocks = 8
	blockSize = 4096
)

func isDir(mode uint32) bool { return mode&unix.S_IFMT == unix.S_IFDIR }

// maskMode encodes the permission in the mode bits, so that the kernel itself enforces it.
// It removes setuid and setgid.
func maskMode(mode uint32, p policy.Permission, writableDir bool) uint32 {
	mode &^= unix.S_ISUID | unix.S_ISGID
	switch {
	case isDir(mode):
		if !writableDir {
			mode &^= 0o222
		}
	case p < policy.Read:
		mode &^= 0o777
	case p < policy.Write:
		mode &^= 0o222
	}
	return mode
}

// fill makes every attribute reply, for the node n with the attributes info. It also
// records what the kernel gets, and makes the kernel drop the pages of a source file that
// changed.
func (fs *FS) fill(n *node, info *layer.Info, a *fuse.Attr) {
	p := fs.permission(n)
	fs.observe(n, info)
	*a = fuse.Attr{
		Ino: fs.ino(info.Ino), Blksize: blockSize, Nlink: info.Nlink, Rdev: info.Rdev,
		Size: uint64(info.Size), Blocks: uint64(info.Blocks),
		Atime: uint64(info.Atime.Sec), Atimensec: uint32(info.Atime.Nsec),
		Mtime: uint64(info.Mtime.Sec), Mtimensec: uint32(info.Mtime.Nsec),
		Ctime: uint64(info.Ctime.Sec), Ctimensec: uint32(info.Ctime.Nsec),
		Owner: fs.owner(),
	}
	if n.isDir() {
		fs.recheck(n, info)
		fs.fillDir(n, info, a)
		// With Ask the requests must come, which have the names.
		a.Mode = maskMode(info.Mode, p, (fs.o.Ask != nil || fs.childWritable(n)) && !info.Mounted)
		return
	}
	a.Mode = maskMode(info.Mode, p, false)
}

// inoShift is where the number of a view is put into the inode numbers that it shows: above
// those of most file systems, below the bits of the layer's own.
const inoShift = 55

// ino returns the inode number to show for the layer's. All views of a connection are one
// device to programs, which take two files with one number for one file.
func (fs *FS) ino(ino uint64) uint64 { return ino ^ uint64(max(fs.o.number-1, 0))<<inoShift }

// owner returns the owner that every entry shows.
func (fs *FS) owner() fuse.Owner { return fuse.Owner{Uid: fs.o.UID, Gid: fs.o.GID} }

// fillDir replaces the attributes of a directory that depend on hidden entries.
func (fs *FS) fillDir(n *node, info *layer.Info, a *fuse.Attr) {
	a.Size, a.Blocks, a.Nlink = dirSize, dirBlocks, min(info.Nlink, 1)
	d := n.dir
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ino, d.mode = info.Ino, info.Mode
	if d.mtime == (unix.Timespec{}) {
		d.mtime, d.ctime, d.real = info.Mtime, info.Mtime, info.Mtime
		d.atime = info.Atime
	}
	a.Mtime, a.Mtimensec = uint64(d.mtime.Sec), uint32(d.mtime.Nsec)
	a.Ctime, a.Ctimensec = uint64(d.ctime.Sec), uint32(d.ctime.Nsec)
	a.Atime, a.Atimensec = uint64(d.atime.Sec), uint32(d.atime.Nsec)
}

// recheck is for a directory that inotify cannot watch. If its modification time has
// changed, recheck lists it again. If its visible names differ, recheck changes the time
// that the directory shows.
func (fs *FS) recheck(n *node, info *layer.Info) {
	d := n.dir
	if !d.tried.Load() || d.quiet.Load() {
		return
	}
	d.mu.Lock()
	before, moved := d.entries, d.next != 0 && d.real != info.Mtime
	d.real = info.Mtime
	d.mu.Unlock()
	p, ok := fs.nodes.path(n)
	if !moved || !ok {
		return
	}
	after, st := fs.entries(n, p, true)
	if st.Ok() && !slices.Equal(before, after) {
		d.changed()
	}
}

// childWritable reports whether the policy lets some child of the directory be written, or
// be made as the parent of a writable path.
func (fs *FS) childWritable(n *node) bool {
	p, ok := fs.nodes.path(n)
	if !ok {
		return true // removed: no entry can be made in it
	}
	state := fs.stateOf(n, p)
	return state.ChildWritable() || state.Policy().MayMkdir(p)
}

// lifetime returns how long, in seconds, the kernel may cache the attributes of an entry of
// parent. parent is nil for an entry without a name.
func lifetime(parent *node, info *layer.Info) uint64 {
	if info.Borrowed {
		return 0
	}
	if info.Origin != layer.Source || !info.Shared && (parent == nil || parent.dir.quiet.Load()) {
		return forever
	}
	return brief
}

// attrLifetime is lifetime for n's attributes. It is brief for a directory that inotify
// cannot watch: a new modification time makes the kernel drop its list of names.
func attrLifetime(n, parent *node, info *layer.Info) uint64 {
	if n.isDir() && n.dir.tried.Load() && !n.dir.quiet.Load() {
		return brief
	}
	return lifetime(parent, info)
}

func (fs *FS) fillEntry(n, parent *node, info *layer.Info, out *fuse.EntryOut) {
	out.NodeId = n.id
	out.EntryValid = lifetime(parent, info)
	out.AttrValid = attrLifetime(n, parent, info)
	if fs.isAwaited(n) {
		out.AttrValid = 0
	}
	fs.fill(n, info, &out.Attr)
}

func (fs *FS) fillAttr(n *node, info *layer.Info, out *fuse.AttrOut) {
	fs.nodes.mu.RLock()
	parent := n.parent
	fs.nodes.mu.RUnlock()
	if n == fs.root {
		parent = n
	}
	out.AttrValid = attrLifetime(n, parent, info)
	if fs.isAwaited(n) {
		out.AttrValid = 0
	}
	fs.fill(n, info, &out.Attr)
	if fs.once.active.Load() > 0 {
		fs.widen(n, info, out)
	}
}

// observe records the attributes that the kernel will get of n. If a source file has
// changed since the last time, observe drops its cached pages.
func (fs *FS) observe(n *node, info *layer.Info) {
	if info.Origin != layer.Source {
		n.clear(flagSource)
		n.shown.Store(0)
		return
	}
	n.set(flagSource)
	if n.isDir() {
		return
	}
	now := fs.stamp(info)
	if before := n.shown.Swap(now); before != 0 && before != now {
		fs.notify.inode(n.id)
	}
}

// stamp returns a fingerprint of the state of a source file's content, for node.shown.
func (fs *FS) stamp(info *layer.Info) uint64 {
	return maphash.Comparable(fs.nodes.seed, struct {
		ino          uint64
		size         int64
		mtime, ctime unix.Timespec
	}{info.ID.Ino, info.Size, info.Mtime, info.Ctime}) | 1
}

// fingerprint returns a fingerprint of a backing file's identity, for node.backing.
func (fs *FS) fingerprint(id layer.FileID) uint64 {
	return maphash.Comparable(fs.nodes.seed, id) | 1
}

// GetAttr answers stat(2). The kernel also asks for the attributes before it refuses an
// open, which is how denials are noticed.
func (fs *FS) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	fs.stats.count(opGetAttr)
	n := fs.nodes.get(in.NodeId)
	if n == nil {
		return fuse.Status(unix.ESTALE)
	}
	if fs.o.Ask != nil {
		if r := fs.retries.due(in.Caller.Pid, n); r != nil {
			if st := fs.askFor(cancel, r); !st.Ok() {
				return st
			}
		}
	}
	refusal, question, st := fs.describeNode(n, in, out)
	if question != nil { // no lock is held while somebody thinks
		return fs.put(cancel, n, refusal, question, out)
	}
	return st
}

// describeNode fills the attributes of n, and reports a refusal that is final. Another one it
// returns.
func (fs *FS) describeNode(n *node, in *fuse.GetAttrIn, out *fuse.AttrOut) (*denied, *Question, fuse.Status) {
	fs.moves.RLock()
	defer fs.moves.RUnlock()
	info, st := fs.stat(n)
	if !st.Ok() {
		return nil, nil, st
	}
	fs.fillAttr(n, &info, out)
	refusal, question := fs.suspect(n, &info, &in.Caller, out.Mode)
	return refusal, question, fuse.OK
}

// stat describes n. The caller holds fs.moves.
func (fs *FS) stat(n *node) (layer.Info, fuse.Status) {
	if o := fs.orphan(n); o != nil {
		info, err := o.Info()
		return info, status(err)
	}
	p, ok := fs.nodes.path(n)
	if !ok {
		return fs.statNameless(n)
	}
	info, err := fs.o.Layer.Lookup(p)
	if err != nil {
		return info, fs.fail("stat", p, err)
	}
	if !fs.sameFile(n, &info) {
		fs.outdated(n)
		return info, fuse.Status(unix.ESTALE)
	}
	return info, fuse.OK
}

// orphan returns the content of a node without a name.
func (fs *FS) orphan(n *node) *layer.Orphan {
	if !n.is(flagExtra) {
		return nil
	}
	return fs.nodes.extra(n).orphan
}

func now() unix.Timespec {
	t := time.Now()
	return unix.Timespec{Sec: t.Unix(), Nsec: int64(t.Nanosecond())}
}

// asShown reports whether info is the state of n that the kernel knows.
func (fs *FS) asShown(n *node, info *layer.Info) bool {
	if info.Origin != layer.Source {
		return n.backing.Load() == fs.fingerprint(info.ID)
	}
	return n.shown.Load() == fs.stamp(info)
}
