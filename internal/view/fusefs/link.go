package fusefs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Link gives a file another name. Both paths need write permission: a link never moves a
// file to another class, or into or out of own entries. The names then share the node.
func (fs *FS) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	fs.stats.count(opLink)
	fs.copyLinked(in, name)
	fs.moves.Lock()
	defer fs.moves.Unlock()
	// Only with the lock: SetPolicy compares the names of the files.
	n, st := fs.allowed(in.Oldnodeid, policy.Write, "link", &in.Caller)
	if !st.Ok() {
		return st
	}
	if n.isDir() {
		return fuse.EPERM
	}
	if fs.permission(n) < policy.Write { // it was opened once, and a name would stay
		fs.denyNode(n, "link", &in.Caller)
		return refused
	}
	s, st := fs.vacantAt(&in.InHeader, name, "link")
	if !st.Ok() {
		return st
	}
	if st := fs.mayLink(n, &s); !st.Ok() {
		return st
	}
	info, st := fs.link(n, &s)
	if !st.Ok() {
		return st
	}
	t := &fs.nodes
	t.mu.Lock()
	if stale := t.childLocked(s.parent, s.name); stale != nil {
		fs.abandonLocked(stale, s.parent, s.name)
	}
	if n.parent == nil {
		t.extraLocked(n).orphan = nil
		t.placeLocked(n, s.parent, s.name)
	} else {
		t.linkLocked(n, s.parent, s.name)
		fs.registerLocked(n, info.ID)
	}
	n.known++
	n.verdict.Store(0)
	t.mu.Unlock()
	n.backing.Store(fs.fingerprint(info.ID))
	s.parent.dir.changed()
	fs.report(Change{Path: s.path, Kind: Created, PID: int(in.Pid)})
	fs.fillEntry(n, s.parent, &info, out)
	return fuse.OK
}

// copyLinked is copyFirst for a file that will get another name.
func (fs *FS) copyLinked(in *fuse.LinkIn, name string) {
	fs.moves.RLock()
	to, st := fs.targetAt(in.NodeId, name)
	fs.moves.RUnlock()
	n := fs.nodes.get(in.Oldnodeid)
	if n != nil && st.Ok() && fs.permission(n) == policy.Write && to.d.Permission == policy.Write {
		fs.bringUp(n)
	}
}

func (fs *FS) link(n *node, s *target) (layer.Info, fuse.Status) {
	if o := fs.orphan(n); o != nil {
		info, err := fs.o.Layer.LinkOrphan(o, s.path)
		if err != nil {
			return info, fs.fail("link", s.path, err)
		}
		return info, fuse.OK
	}
	old, ok := fs.nodes.path(n)
	if !ok {
		return layer.Info{}, fuse.Status(unix.ESTALE)
	}
	info, err := fs.o.Layer.Link(old, s.path)
	if err != nil {
		return info, fs.fail("link", s.path, err)
	}
	if n.is(flagSource) {
		n.clear(flagSource)
		fs.fds.drop(n) // it was of the source's file
	}
	return info, fuse.OK
}
