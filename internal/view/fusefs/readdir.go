package fusefs

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/uses"
)

// dir has the additional fields of a node that is a directory.
type dir struct {
	kids    uint32  // names of nodes in this directory; guarded by table.mu
	buckets []*node // the nodes with their first name in this directory; guarded by table.mu

	quiet atomic.Bool // a change of the directory comes with an event, or is impossible
	tried atomic.Bool // a watch was tried
	wd    int32       // number of the inotify watch, 0: none; guarded by watcher.mu

	mu      sync.Mutex
	entries []dirent // by offset
	next    uint32   // the highest offset in use
	fresh   bool     // entries are up to date
	epoch   uint32   // of state
	state   policy.State
	ino     uint64 // this and the following: as last shown
	mode    uint32
	mtime   unix.Timespec // zero: not known yet
	ctime   unix.Timespec
	// atime is the directory's access time when it was first read, or a time that a program
	// set. It does not follow the host: with relatime it would reveal that a hidden name
	// was added or removed.
	atime  unix.Timespec
	real   unix.Timespec // the source's modification time at the last check
	reader sequence      // the program that reads the files in order
}

// dirent is a visible name. Its offset is never reused for another name, because no handle
// stores the position of a reader.
type dirent struct {
	name   string
	offset uint32
	kind   uint8 // S_IFMT>>12
}

func (e *dirent) mode() uint32 { return uint32(e.kind) << 12 }

// The offsets of "." and "..".
const (
	offsetDot    = 1
	offsetDotDot = 2
)

// outdate makes the next reader list the directory again.
func (d *dir) outdate() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fresh = false
}

// changed is outdate after a visible name was added or removed.
func (d *dir) changed() {
	t := now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fresh = false
	d.mtime, d.ctime = t, t
}

// OpenDir is not implemented, so the kernel opens directories by itself.
func (fs *FS) OpenDir(_ <-chan struct{}, _ *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	fs.stats.count(opOpenDir)
	return fuse.ENOSYS
}

// ReadDir lists names and types only.
func (fs *FS) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	fs.stats.count(opReadDir)
	return fs.readDir(in, func(_ *node, _ vpath.Path, e fuse.DirEntry) bool { return out.AddDirEntry(e) })
}

// ReadDirPlus lists names with attributes; each counts as a look-up.
func (fs *FS) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	fs.stats.count(opReadDirPlus)
	return fs.readDir(in, func(parent *node, p vpath.Path, e fuse.DirEntry) bool {
		if e.Name == "." || e.Name == ".." || fs.learning.Load() != nil {
			return out.AddDirLookupEntry(e) != nil
		}
		return fs.addPlus(parent, p, e, out)
	})
}

// addPlus adds an entry with its attributes, or skips it if it no longer exists. It reports
// whether there was room.
func (fs *FS) addPlus(parent *node, p vpath.Path, e fuse.DirEntry, out *fuse.DirEntryList) bool {
	key, _ := fs.keyOf(fs.stateOf(parent, p), p, e.Name)
	n, info, st := fs.find(parent, p, key)
	if st == fuse.ENOENT {
		return true
	}
	if st.Ok() {
		state := fs.stateOf(parent, p)
		d := state.DecideChild(key)
		if !visible(d, info.Mode) {
			fs.forget(n, 1)
			return true
		}
		fs.rule(n, state.Policy(), d)
		e.Mode, e.Ino = info.Mode, fs.ino(info.Ino)
	}
	entry := out.AddDirLookupEntry(e)
	switch {
	case entry == nil && st.Ok():
		fs.forget(n, 1)
	case entry != nil && st.Ok():
		fs.fillEntry(n, parent, &info, entry)
	}
	return entry != nil
}

// readDir calls add for each visible name after in.Offset until add returns false.
func (fs *FS) readDir(in *fuse.ReadIn, add func(*node, vpath.Path, fuse.DirEntry) bool) fuse.Status {
	fs.moves.RLock()
	defer fs.moves.RUnlock()
	n, p, st := fs.dirAt(in.NodeId)
	if !st.Ok() {
		return st
	}
	if fs.permission(n) == policy.None {
		return absent
	}
	entries, st := fs.entries(n, p, in.Offset == 0)
	if !st.Ok() {
		return st
	}
	fs.used(p, uses.Listed, true, in.Pid)
	for _, e := range fs.dots(n) {
		if e.Off > in.Offset && !add(n, p, e) {
			return fuse.OK
		}
	}
	from, _ := slices.BinarySearchFunc(entries, in.Offset+1, func(e dirent, offset uint64) int {
		return cmp.Compare(uint64(e.offset), offset)
	})
	for _, e := range entries[from:] {
		if !add(n, p, fuse.DirEntry{Name: e.name, Mode: e.mode(), Off: uint64(e.offset)}) {
			break
		}
	}
	return fuse.OK
}

// dots returns "." and "..".
func (fs *FS) dots(n *node) []fuse.DirEntry {
	fs.nodes.mu.RLock()
	parent := n.parent
	fs.nodes.mu.RUnlock()
	if parent == nil {
		parent = n
	}
	return []fuse.DirEntry{
		{Name: ".", Mode: unix.S_IFDIR, Ino: fs.ino(n.dir.number()), Off: offsetDot},
		{Name: "..", Mode: unix.S_IFDIR, Ino: fs.ino(parent.dir.number()), Off: offsetDotDot},
	}
}

func (d *dir) number() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ino
}

// entries returns the directory's visible names by offset. With begin, it first updates
// them. The slice does not change afterwards.
func (fs *FS) entries(n *node, p vpath.Path, begin bool) ([]dirent, fuse.Status) {
	d := n.dir
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.next != 0 && (!begin || d.fresh && d.quiet.Load()) {
		return d.entries, fuse.OK
	}
	fs.watcher.watch(n, p)
	d.fresh = true
	list, err := fs.o.Layer.ReadDir(p)
	if err != nil {
		d.fresh = false
		return nil, fs.fail("list", p, err)
	}
	state := d.stateLocked(fs.rules.Load(), p)
	shown := list[:0]
	for _, e := range list {
		if fs.lists(p, &e, state.DecideChild(e.Name)) && !reserved(n, e.Name) {
			shown = append(shown, e)
		}
	}
	d.renumber(layer.AsSeen(shown))
	return d.entries, fuse.OK
}

// renumber makes entries of the names shown. A name that was listed before keeps its
// offset. New names get higher offsets than any before, in sorted order, which is the order
// in which most programs then read the files.
func (d *dir) renumber(shown []layer.DirEntry) {
	if d.next == 0 {
		d.next = offsetDotDot
	}
	var old map[string]uint32
	if len(d.entries) > 0 {
		old = make(map[string]uint32, len(d.entries))
		for _, e := range d.entries {
			old[e.name] = e.offset
		}
	}
	entries := make([]dirent, 0, len(shown))
	for _, e := range shown {
		if offset, ok := old[e.Name]; ok {
			entries = append(entries, dirent{e.Name, offset, uint8(e.Mode >> 12)})
		}
	}
	slices.SortFunc(entries, func(a, b dirent) int { return cmp.Compare(a.offset, b.offset) })
	slices.SortFunc(shown, func(a, b layer.DirEntry) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range shown {
		if _, ok := old[e.Name]; !ok {
			d.next++
			entries = append(entries, dirent{e.Name, d.next, uint8(e.Mode >> 12)})
		}
	}
	d.entries = entries
}

// ReleaseDir never comes, since OpenDir never succeeds.
func (fs *FS) ReleaseDir(*fuse.ReleaseIn) {}

// FsyncDir is not implemented, and fsync(2) of a directory succeeds. The layer makes
// durable what must not be lost.
func (fs *FS) FsyncDir(_ <-chan struct{}, _ *fuse.FsyncIn) fuse.Status { return fuse.ENOSYS }

// notFound reports whether err is NotFound.
func notFound(err error) bool { return errdefs.Is(err, errdefs.NotFound) }
