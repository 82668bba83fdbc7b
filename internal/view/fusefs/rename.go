package fusefs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Rename moves a name. Both paths need write permission. For a directory, every visible
// entry below needs it too, at its old and its new path. Otherwise the reply is EXDEV, and
// mv(1) copies what it may read.
func (fs *FS) Rename(_ <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	fs.stats.count(opRename)
	if in.Flags&^(unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE) != 0 {
		return fuse.EINVAL
	}
	fs.copyFirst(in, oldName, newName)
	fs.moves.Lock()
	defer fs.moves.Unlock()
	if st := fs.askMove(in, oldName, newName); !st.Ok() {
		return st
	}
	from, st := fs.occupiedAt(&in.InHeader, oldName, "rename")
	if !st.Ok() {
		return st
	}
	to, st := fs.targetAt(in.Newdir, newName)
	if !st.Ok() {
		return st
	}
	if st := fs.mayMake(&to, "rename", &in.Caller); !st.Ok() {
		return st
	}
	exchange := in.Flags&unix.RENAME_EXCHANGE != 0
	isDirectory, st := fs.mayMove(from.path, to.path, exchange)
	if !st.Ok() {
		return st
	}
	return fs.rename(&from, &to, in, isDirectory)
}

// copyFirst copies up a source file that will move, if the policy permits the move. It does
// so before the handler locks FS.moves, because a copy can take long.
func (fs *FS) copyFirst(in *fuse.RenameIn, oldName, newName string) {
	fs.moves.RLock()
	from, st := fs.targetAt(in.NodeId, oldName)
	to, st2 := fs.targetAt(in.Newdir, newName)
	fs.moves.RUnlock()
	if !st.Ok() || !st2.Ok() || from.d.Permission < policy.Write || to.d.Permission < policy.Write && !to.d.Own {
		return
	}
	if n := fs.nodes.child(from.parent, from.name); n != nil {
		fs.bringUp(n)
	}
}

// bringUp copies n up if it is a regular file of the source. It ignores errors, because the
// operation itself meets them again.
func (fs *FS) bringUp(n *node) {
	if !n.isRegular() || !n.is(flagSource) {
		return
	}
	if h, st := fs.handle(n, true); st.Ok() {
		fs.fds.release(h)
	}
}

// mayMove reports whether the entry at from is a directory. It returns EXDEV for an entry
// that may not move.
func (fs *FS) mayMove(from, to vpath.Path, exchange bool) (bool, fuse.Status) {
	info, err := fs.o.Layer.Lookup(from)
	if err != nil {
		return false, fs.fail("rename", from, err)
	}
	directory := info.IsDir()
	if directory && !fs.movable(from, to) || crosses(from, to, &info) {
		return directory, fuse.EXDEV
	}
	if !exchange {
		return directory, fuse.OK
	}
	other, err := fs.o.Layer.Lookup(to)
	if err != nil {
		return directory, fs.fail("rename", to, err)
	}
	if other.IsDir() && !fs.movable(to, from) || crosses(to, from, &other) {
		return directory, fuse.EXDEV
	}
	return directory || other.IsDir(), fuse.OK
}

// maxMoved is how many entries are checked before a directory moves. The layer has narrower
// bounds for what it copies.
const maxMoved = 100_000

// movable reports whether each visible entry below the directory from has write permission
// there and below to, and whether own entries among them stay own entries.
func (fs *FS) movable(from, to vpath.Path) bool {
	left := maxMoved
	return fs.movableIn(from, to, fs.rules.Load().At(from), fs.rules.Load().At(to), &left)
}

func (fs *FS) movableIn(from, to vpath.Path, at, then policy.State, left *int) bool {
	entries, err := fs.o.Layer.ReadDir(from)
	if err != nil {
		return false
	}
	for _, e := range entries {
		d := at.DecideChild(e.Name)
		if !visible(d, e.Mode) {
			continue // not visible, so it does not count
		}
		if *left--; *left < 0 {
			return false
		}
		if vpath.IsOwnName(e.Name) {
			if !staysOwn(e.Name, then) {
				return false
			}
			continue
		}
		if d.Permission != policy.Write || then.DecideChild(e.Name).Permission != policy.Write {
			return false
		}
		if at.IsOwn() != then.IsOwn() && !isDir(e.Mode) {
			info, err := fs.o.Layer.LookupIn(from, e.Name)
			if err != nil || crosses(from, to, &info) {
				return false
			}
		}
		if isDir(e.Mode) && !fs.movableIn(from.Child(e.Name), to.Child(e.Name), at.Child(e.Name), then.Child(e.Name), left) {
			return false
		}
	}
	return true
}

func (fs *FS) rename(from, to *target, in *fuse.RenameIn, directory bool) fuse.Status {
	exchange := in.Flags&unix.RENAME_EXCHANGE != 0
	moved := fs.nodes.child(from.parent, from.name)
	there := fs.nodes.child(to.parent, to.name)
	var inside func(name string) bool
	if directory {
		inside = fs.showsIn(to.path)
	}
	orphan, err := fs.o.Layer.Rename(from.path, to.path, layer.RenameOptions{
		NoReplace: in.Flags&unix.RENAME_NOREPLACE != 0,
		Exchange:  exchange,
		Visible: func(p vpath.Path) bool {
			if p.Dir() == to.path {
				return inside(p.Base())
			}
			return fs.rules.Load().Decide(p).Permission != policy.None // every visible entry has write permission, see movable
		},
		KeepReplaced: there != nil && !exchange && !there.isDir() && fs.lastName(there),
	})
	if err != nil {
		return fs.fail("rename", from.path, err)
	}
	if moved == there && moved != nil {
		orphan.Forget() // two names of one file: rename does nothing
		return fuse.OK
	}
	fs.usedMove(from.path, to.path, directory, exchange, in.Pid)
	fs.detachSubtree(moved, directory)
	if exchange {
		fs.detachSubtree(there, directory)
	}
	if there != nil && !exchange {
		fs.removed(to, there, orphan)
	} else {
		orphan.Forget()
	}
	fs.relocate(from, to, moved, there, exchange)
	from.parent.dir.changed()
	to.parent.dir.changed()
	if directory {
		fs.nextEpoch(nil, nil)
	}
	if exchange {
		fs.report(Change{Path: from.path, Kind: Modified, PID: int(in.Pid)})
		fs.report(Change{Path: to.path, Kind: Modified, PID: int(in.Pid)})
		return fuse.OK
	}
	fs.report(Change{Path: from.path, To: to.path, Dir: directory, Over: there != nil, Kind: Renamed, PID: int(in.Pid)})
	return fuse.OK
}

// relocate moves the nodes to their new places.
func (fs *FS) relocate(from, to *target, moved, there *node, exchange bool) {
	t := &fs.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	swap := exchange && there != nil
	if moved != nil {
		t.dropNameLocked(moved, from.parent, from.name)
	}
	if swap {
		t.dropNameLocked(there, to.parent, to.name)
		t.settleLocked(there, from.parent, from.name)
	}
	if moved != nil {
		t.settleLocked(moved, to.parent, to.name)
	}
}

// detachSubtree drops what n, and the nodes below it, cache of the source.
func (fs *FS) detachSubtree(n *node, directory bool) {
	if n == nil {
		return
	}
	if !directory {
		if n.is(flagSource) {
			fs.fds.drop(n)
		}
		return
	}
	for _, f := range fs.fds.readOnly() {
		fs.nodes.mu.RLock()
		below := fs.nodes.withinLocked(f, n)
		fs.nodes.mu.RUnlock()
		if below {
			fs.fds.drop(f)
		}
	}
	fs.unwatchBelow(n)
}

// unwatchBelow ends the watches of n and of the directories below it, which no longer show
// the source.
func (fs *FS) unwatchBelow(n *node) {
	if n == nil {
		return
	}
	for _, w := range fs.watcher.watched() {
		fs.nodes.mu.RLock()
		below := fs.nodes.withinLocked(w, n)
		fs.nodes.mu.RUnlock()
		if below {
			fs.watcher.unwatch(w)
		}
	}
}
