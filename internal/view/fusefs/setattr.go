package fusefs

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/uses"
)

// SetAttr changes mode, size and times, in the delta. It refuses another owner than the one
// shown.
func (fs *FS) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	fs.stats.count(opSetAttr)
	n, st := fs.maySetAttr(in)
	if !st.Ok() {
		return st
	}
	stale := fs.prefetch.overwrite(n, 0, 0)
	defer fs.prefetch.settle(stale)
	fs.moves.RLock()
	defer fs.moves.RUnlock()
	mu := fs.stripe(n)
	mu.Lock()
	defer mu.Unlock()
	if fs.gives(in) {
		return fuse.EPERM
	}
	a := wanted(in)
	var info layer.Info
	if a == (layer.SetAttr{}) {
		info, st = fs.stat(n)
	} else {
		info, st = fs.setAttr(n, a)
	}
	if !st.Ok() {
		return st
	}
	if n.isDir() {
		n.dir.setTimes(a.Atime, a.Mtime)
	}
	fs.fillAttr(n, &info, out)
	if p, ok := fs.nodes.path(n); ok && a != (layer.SetAttr{}) {
		fs.used(p, uses.Written, n.isDir(), in.Pid)
		fs.report(Change{Path: p, Kind: Modified, PID: int(in.Pid)})
	}
	return fuse.OK
}

// gives reports whether the request would change the owner of the entry.
func (fs *FS) gives(in *fuse.SetAttrIn) bool {
	uid, setUID := in.GetUID()
	gid, setGID := in.GetGID()
	return setUID && uid != fs.o.UID || setGID && gid != fs.o.GID
}

// wanted returns the attributes that the request changes.
func wanted(in *fuse.SetAttrIn) layer.SetAttr {
	var a layer.SetAttr
	if mode, ok := in.GetMode(); ok {
		a.Mode, a.OwnerOnly = &mode, true
	}
	if size, ok := in.GetSize(); ok {
		s := int64(size)
		a.Size = &s
	}
	if t, ok := in.GetATime(); ok {
		current := in.Valid&fuse.FATTR_ATIME_NOW != 0
		a.Atime, a.OwnerOnly = timespec(t, current), a.OwnerOnly || !current
	}
	if t, ok := in.GetMTime(); ok {
		current := in.Valid&fuse.FATTR_MTIME_NOW != 0
		a.Mtime, a.OwnerOnly = timespec(t, current), a.OwnerOnly || !current
	}
	return a
}

func timespec(t time.Time, current bool) *unix.Timespec {
	ts := unix.Timespec{Sec: t.Unix(), Nsec: int64(t.Nanosecond())}
	if current {
		ts = now()
	}
	return &ts
}

// setAttr changes n in the delta. The caller holds fs.moves and n's stripe.
func (fs *FS) setAttr(n *node, a layer.SetAttr) (layer.Info, fuse.Status) {
	if o := fs.orphan(n); o != nil {
		source := n.is(flagSource)
		info, err := o.SetAttr(a)
		if err == nil && source {
			fs.fds.drop(n)
		}
		return info, status(err)
	}
	p, ok := fs.nodes.path(n)
	if !ok {
		return layer.Info{}, fuse.Status(unix.ESTALE)
	}
	source := n.is(flagSource)
	info, err := fs.o.Layer.SetAttr(p, a)
	if err != nil {
		return info, fs.fail("setattr", p, err)
	}
	if source {
		n.clear(flagSource)
		fs.fds.drop(n) // it was the source's
	}
	if !n.isDir() {
		n.backing.Store(fs.fingerprint(info.ID))
	}
	return info, fuse.OK
}

// setTimes changes the times that the directory shows.
func (d *dir) setTimes(atime, mtime *unix.Timespec) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ctime = now()
	if atime != nil {
		d.atime = *atime
	}
	if mtime != nil {
		d.mtime = *mtime
	}
}
