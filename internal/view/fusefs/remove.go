package fusefs

import (
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/uses"
)

// occupiedAt is targetAt for a name to be removed, moved or replaced. A path with
// permission none gets the reply of an absent name.
func (fs *FS) occupiedAt(in *fuse.InHeader, name, operation string) (target, fuse.Status) {
	s, st := fs.targetAt(in.NodeId, name)
	if !st.Ok() {
		return s, st
	}
	switch {
	case s.d.Permission == policy.Write && !s.shut:
		return s, fuse.OK
	case s.d.ForDir() == policy.None:
		fs.deny(denied{path: s.path, operation: operation, d: s.d, caller: &in.Caller})
		return s, absent
	}
	return s, fs.refuse(s.parent, denied{path: s.path, operation: operation, d: s.d, caller: &in.Caller})
}

// Unlink removes a name of a file. The content exists as long as the kernel knows the file.
func (fs *FS) Unlink(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	fs.stats.count(opUnlink)
	fs.moves.RLock()
	defer fs.moves.RUnlock()
	s, st := fs.occupiedAt(in, name, "unlink")
	if !st.Ok() {
		return st
	}
	n := fs.nodes.child(s.parent, s.name)
	if n != nil {
		mu := fs.stripe(n)
		mu.Lock()
		defer mu.Unlock()
	}
	orphan, err := fs.o.Layer.Unlink(s.path, n != nil && fs.lastName(n))
	if err != nil {
		if notFound(err) {
			fs.notify.entry(s.parent.id, name)
		}
		return fs.fail("unlink", s.path, err)
	}
	fs.removed(&s, n, orphan)
	fs.used(s.path, uses.Removed, false, in.Pid)
	fs.report(Change{Path: s.path, Kind: Deleted, PID: int(in.Pid)})
	return fuse.OK
}

// lastName reports whether n has one name only.
func (fs *FS) lastName(n *node) bool {
	return !n.is(flagExtra) || len(fs.nodes.extra(n).links) == 0
}

// removed removes the name at s from n, which may be nil, and keeps the orphan in n.
func (fs *FS) removed(s *target, n *node, orphan *layer.Orphan) {
	s.parent.dir.changed()
	if n == nil {
		orphan.Forget()
		return
	}
	t := &fs.nodes
	t.mu.Lock()
	dead := n.known == 0
	last := t.dropNameLocked(n, s.parent, s.name)
	if last && !dead {
		x := t.extraLocked(n)
		x.last = s.path
		if orphan != nil {
			x.orphan = orphan
			orphan = nil
		}
		if t.files[x.file] == n {
			delete(t.files, x.file)
		}
	}
	n.verdict.Store(0)
	t.mu.Unlock()
	orphan.Forget()
}

// Rmdir removes a directory without visible entries.
func (fs *FS) Rmdir(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	fs.stats.count(opRmdir)
	fs.moves.RLock()
	defer fs.moves.RUnlock()
	s, st := fs.occupiedAt(in, name, "rmdir")
	if !st.Ok() {
		return st
	}
	if err := fs.o.Layer.Rmdir(s.path, fs.showsIn(s.path)); err != nil {
		return fs.fail("rmdir", s.path, err)
	}
	n := fs.nodes.child(s.parent, s.name)
	if n != nil && n.isDir() {
		fs.watcher.unwatch(n)
	}
	fs.removed(&s, n, nil)
	fs.used(s.path, uses.Removed, true, in.Pid)
	fs.report(Change{Path: s.path, Kind: Deleted, PID: int(in.Pid)})
	return fuse.OK
}

// showsIn returns a function that reports whether a name in the directory p is visible. The
// layer calls that function with its locks held, so showsIn reads the types of the entries
// first: only a directory shows because it is traversable.
func (fs *FS) showsIn(p vpath.Path) func(name string) bool {
	state := fs.rules.Load().At(p)
	files := map[string]bool{}
	if entries, err := fs.o.Layer.ReadDir(p); err == nil {
		for _, e := range entries {
			if !isDir(e.Mode) {
				files[e.Name] = true
			}
		}
	}
	return func(name string) bool {
		d := state.DecideChild(name)
		return d.Permission != policy.None || d.Traversable && !files[name]
	}
}
