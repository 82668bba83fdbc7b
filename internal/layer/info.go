package layer

import (
	"encoding/binary"
	"hash/fnv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/vpath"
)

// Origin says which kind of layer an entry comes from.
type Origin uint8

// The origins.
const (
	Source Origin = iota // unchanged
	Frozen               // changed before a Freeze
	Delta                // changed since
)

// FileID tells one backing file from every other; it does not survive a
// copy-up. A descriptor opened again must have the FileID it had.
type FileID struct {
	Dev, Ino uint64
	Birth    int64 // nanoseconds, 0 where the file system does not say
}

// Info describes an entry of the view.
//
// Ino is the number to show: the source's for a directory or a file with one
// name of the source's own file system, and for its copy in the delta; else a
// number of our own, with the highest bit set. It stays over copy-up, rename
// and restart.
type Info struct {
	Mode    uint32 // type and permission bits, never setuid or setgid in a delta
	Ino     uint64
	Size    int64  // bytes
	Blocks  int64  // of 512 bytes
	Nlink   uint32 // names made inside, at least 1; 0 for an orphan
	UID     uint32
	GID     uint32
	Rdev    uint32
	Atime   unix.Timespec
	Mtime   unix.Timespec
	Ctime   unix.Timespec
	Origin  Origin
	ID      FileID
	Shared  bool // of the source, and changes may come without an event: several names, network or FUSE
	Mounted bool // a mount nested in the source: a directory shows as empty and nothing can be made in it, a file cannot be opened
}

// IsDir reports whether the entry is a directory.
func (i *Info) IsDir() bool { return i.Mode&unix.S_IFMT == unix.S_IFDIR }

// DirEntry is a name in a directory. Ino is Info.Ino except for a file of the
// source with several names, where it is the source's number.
type DirEntry struct {
	Name string
	Mode uint32 // type bits only
	Ino  uint64
}

// ownBit marks numbers that are not the source's; hashBit those among them
// that are derived from a path.
const (
	ownBit  = 1 << 63
	hashBit = 1 << 62
)

// info describes the entry at p of a layer of origin o whose backing file is st.
func (s *Stack) info(p vpath.Path, o Origin, st *stat) Info {
	i := Info{
		Mode: st.mode, Size: st.size, Blocks: st.blocks, Nlink: 1, UID: st.uid, GID: st.gid, Rdev: uint32(st.rdev),
		Atime: st.atime, Mtime: st.mtime, Ctime: st.ctime,
		Origin: o, ID: FileID{st.dev, st.ino, st.birth},
	}
	if o == Source {
		i.Ino = s.sourceIno(p, st)
		i.Shared = s.sourceRemote || (st.nlink > 1 && !st.isDir())
		if st.mounted && !p.IsRoot() {
			i.Mounted = true
			i.Size, i.Blocks = 0, 0
			i.Mode = st.kind()
			if st.isDir() {
				i.Mode |= 0o555
			}
		}
		return i
	}
	i.Ino = s.inodes.shown(st)
	if !st.isDir() {
		i.Nlink = st.nlink - min(st.nlink, s.orphanNames(st))
	}
	return i
}

// sourceIno returns the number shown for the source's entry at p.
func (s *Stack) sourceIno(p vpath.Path, st *stat) uint64 {
	if st.dev == s.sourceDev && st.ino&ownBit == 0 && (st.nlink == 1 || st.isDir()) {
		return st.ino
	}
	h := fnv.New64a()
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], st.dev)
	binary.LittleEndian.PutUint64(b[8:], st.ino)
	h.Write(b[:])
	h.Write([]byte(p))
	return h.Sum64() | ownBit | hashBit
}

// inodes remembers which number is shown for a backing file of a delta, where
// it is not the one derived from its own.
type inodes struct {
	mu sync.RWMutex
	m  map[uint64]inodeAlias
}

type inodeAlias struct {
	birth int64
	shown uint64
}

// shown returns the number to show for a file of a delta. A backing number
// that was given to another file since has another birth.
func (n *inodes) shown(st *stat) uint64 {
	n.mu.RLock()
	a, ok := n.m[st.ino]
	n.mu.RUnlock()
	if ok && a.birth == st.birth {
		return a.shown
	}
	return ownNumber(st.ino)
}

// ownNumber is shown for a file made in the delta.
func ownNumber(ino uint64) uint64 { return ino&^hashBit | ownBit }

// has reports whether the backing file ino may show another number than its
// own.
func (n *inodes) has(ino uint64) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	_, ok := n.m[ino]
	return ok
}

// byShown returns the backing files by the numbers they show; files that are
// gone may be among them.
func (n *inodes) byShown() map[uint64][]uint64 {
	n.mu.RLock()
	defer n.mu.RUnlock()
	m := make(map[uint64][]uint64, len(n.m))
	for ino, a := range n.m {
		m[a.shown] = append(m[a.shown], ino)
	}
	return m
}

// unalias lets the backing file ino show its own number, if it shows the given
// one, and returns what is to be recorded.
func (n *inodes) unalias(ino, shown uint64) (inodeAlias, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a, ok := n.m[ino]
	if !ok || a.shown != shown {
		return inodeAlias{}, false
	}
	a.shown = ownNumber(ino)
	n.m[ino] = a
	return a, true
}

func (n *inodes) set(ino uint64, a inodeAlias) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.m == nil {
		n.m = map[uint64]inodeAlias{}
	}
	n.m[ino] = a
}

// reset replaces all that is known.
func (n *inodes) reset(m map[uint64]inodeAlias) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.m = m
}

// forget drops what is known of a backing file whose last name is gone.
func (n *inodes) forget(ino uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.m, ino)
}

// orphanNames returns how many names of the backing file are orphans'.
func (s *Stack) orphanNames(st *stat) uint32 {
	if st.nlink < 2 {
		return 0
	}
	s.orphanMu.Lock()
	defer s.orphanMu.Unlock()
	return s.orphanLinks[st.ino]
}
