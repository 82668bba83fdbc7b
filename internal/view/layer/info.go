package layer

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
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
	Mode    uint32 // type and permission bits, never setuid or setgid in a delta; see User
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

// info describes the entry at p of a layer of origin o whose backing file is st.
func (s *Stack) info(p vpath.Path, o Origin, st *stat) Info {
	i := Info{
		Mode: st.mode, Size: st.size, Blocks: st.blocks, Nlink: 1, UID: st.uid, GID: st.gid, Rdev: uint32(st.rdev),
		Atime: st.atime, Mtime: st.mtime, Ctime: st.ctime,
		Origin: o, ID: FileID{st.dev, st.ino, st.birth},
	}
	if o == Source {
		i.Mode = st.rights.applyTo(st.mode)
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
