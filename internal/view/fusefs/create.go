package fusefs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/uses"
)

// target is the name at which a handler will make, replace or remove an entry.
type target struct {
	parent *node
	dir    vpath.Path
	name   string
	path   vpath.Path
	d      policy.Decision
	shut   bool // nothing may be changed in dir
}

// targetAt finds name in the directory id. The caller holds fs.moves.
func (fs *FS) targetAt(id uint64, name string) (target, fuse.Status) {
	parent, dir, st := fs.dirAt(id)
	if !st.Ok() {
		return target{}, st
	}
	if len(name) > vpath.NameMax {
		return target{}, fuse.Status(unix.ENAMETOOLONG)
	}
	name, d := fs.keyOf(fs.stateOf(parent, dir), dir, name)
	return target{parent, dir, name, dir.Child(name), d, fs.isShut(parent)}, fuse.OK
}

// vacantAt is targetAt for an entry to be made. At a path without write permission, the
// reply does not depend on the source. If the policy permits an own entry there, target
// names it, see claim.
func (fs *FS) vacantAt(in *fuse.InHeader, name, operation string) (target, fuse.Status) {
	s, st := fs.targetAt(in.NodeId, name)
	if !st.Ok() {
		return s, st
	}
	return s, fs.mayMake(&s, operation, &in.Caller)
}

func (fs *FS) mayMake(s *target, operation string, c *fuse.Caller) fuse.Status {
	if reserved(s.parent, s.name) {
		return refused
	}
	if s.d.Own && !s.shut {
		return fs.claim(s)
	}
	if s.d.Permission < policy.Write || s.shut {
		return fs.refuse(s.parent, denied{path: s.path, operation: operation, d: s.d, caller: c})
	}
	return fuse.OK
}

// instantiate returns the node of a new entry, with a look-up count of one, and reports the
// change.
func (fs *FS) instantiate(s *target, info *layer.Info, c *fuse.Caller) *node {
	t := &fs.nodes
	t.mu.Lock()
	if old := t.childLocked(s.parent, s.name); old != nil {
		fs.abandonLocked(old, s.parent, s.name)
	}
	n := t.addLocked(info.Mode)
	t.placeLocked(n, s.parent, s.name)
	n.known = 1
	t.mu.Unlock()
	if !n.isDir() {
		n.backing.Store(fs.fingerprint(info.ID))
	}
	n.set(flagTouched)
	s.parent.dir.changed()
	fs.used(s.path, uses.Created, n.isDir(), c.Pid)
	fs.report(Change{Path: s.path, Kind: Created, PID: int(c.Pid)})
	return n
}

// replyEntry answers an operation that made an entry.
func (fs *FS) replyEntry(s *target, info *layer.Info, err error, operation string, c *fuse.Caller, out *fuse.EntryOut) fuse.Status {
	if err != nil {
		return fs.fail(operation, s.path, err)
	}
	n := fs.instantiate(s, info, c)
	fs.fillEntry(n, s.parent, info, out)
	return fuse.OK
}

// Create makes a regular file. It returns no handle, because there is no state per open
// file.
func (fs *FS) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	fs.stats.count(opCreate)
	fs.moves.RLock()
	defer fs.moves.RUnlock()
	s, st := fs.vacantAt(&in.InHeader, name, "create")
	if !st.Ok() {
		return st
	}
	f, info, err := fs.o.Layer.Create(s.path, in.Mode)
	if err != nil {
		st := fs.fail("create", s.path, err)
		if st == fuse.Status(unix.EEXIST) {
			fs.notify.entry(s.parent.id, name)
			if in.Flags&unix.O_EXCL == 0 {
				return fuse.Status(unix.ESTALE) // the kernel looks the name up again and opens what it finds
			}
		}
		return st
	}
	n := fs.instantiate(&s, &info, &in.Caller)
	if s.d.Permission < policy.Write {
		fs.once.allow(n, policy.Write, s.d.Permission)
	}
	fs.fds.release(fs.fds.put(&handle{file: f, node: n, writer: fs.writer(&in.Caller)}))
	fs.fillEntry(n, s.parent, &info, &out.EntryOut)
	return fuse.OK
}

// Tmpfile makes a file that has no name until it is linked.
func (fs *FS) Tmpfile(_ <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	fs.stats.count(opTmpfile)
	fs.moves.RLock()
	defer fs.moves.RUnlock()
	parent, p, st := fs.dirAt(in.NodeId)
	if !st.Ok() {
		return st
	}
	if state := fs.stateOf(parent, p); !state.ChildWritable() {
		fs.deny(denied{path: p, operation: "create", d: state.Policy().Decide(p), caller: &in.Caller})
		return refused
	}
	o, err := fs.o.Layer.CreateOrphan(in.Mode)
	if err != nil {
		return fs.fail("create", p, err)
	}
	info, err := o.Info()
	if err != nil {
		o.Forget()
		return fs.fail("create", p, err)
	}
	t := &fs.nodes
	t.mu.Lock()
	n := t.addLocked(info.Mode)
	n.known = 1
	n.set(flagNameless | flagTouched)
	t.extraLocked(n).orphan = o
	t.mu.Unlock()
	fs.fillEntry(n, nil, &info, &out.EntryOut)
	return fuse.OK
}

// Mkdir makes a directory. The policy also permits that for an absent ancestor of a path
// with write permission.
func (fs *FS) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	fs.stats.count(opMkdir)
	fs.moves.RLock()
	defer fs.moves.RUnlock()
	s, st := fs.targetAt(in.NodeId, name)
	if !st.Ok() {
		return st
	}
	if s.shut || !fs.rules.Load().MayMkdir(s.path) {
		if st := fs.mayMake(&s, "mkdir", &in.Caller); !st.Ok() {
			return st
		}
	}
	mkdir := fs.o.Layer.Mkdir
	if s.d.Permission == policy.None {
		mkdir = fs.o.Layer.MkdirOver // the view shows no file of the source here, so the program must not notice one
	}
	info, err := mkdir(s.path, in.Mode)
	return fs.replyEntry(&s, &info, err, "mkdir", &in.Caller, out)
}

// Mknod makes a regular file, a FIFO or a socket. Devices are refused.
func (fs *FS) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	fs.stats.count(opMknod)
	fs.moves.RLock()
	defer fs.moves.RUnlock()
	s, st := fs.vacantAt(&in.InHeader, name, "mknod")
	if !st.Ok() {
		return st
	}
	info, err := fs.o.Layer.Mknod(s.path, in.Mode)
	return fs.replyEntry(&s, &info, err, "mknod", &in.Caller, out)
}

// Symlink makes a symbolic link with any target. The kernel resolves the target in the
// view.
func (fs *FS) Symlink(_ <-chan struct{}, in *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	fs.stats.count(opSymlink)
	fs.moves.RLock()
	defer fs.moves.RUnlock()
	s, st := fs.vacantAt(in, name, "symlink")
	if !st.Ok() {
		return st
	}
	info, err := fs.o.Layer.Symlink(target, s.path)
	return fs.replyEntry(&s, &info, err, "symlink", &in.Caller, out)
}
