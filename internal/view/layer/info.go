package layer

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Origin is the kind of layer that an entry comes from.
type Origin uint8

// The origins.
const (
	Source Origin = iota // unchanged
	Frozen               // changed before the last Freeze
	Delta                // changed after it
)

// FileID identifies a backing file. A copy-up changes it. A file that is opened again must
// have the same FileID.
type FileID struct {
	Dev, Ino uint64
	Birth    int64 // nanoseconds; 0 if the file system does not report it
}

// Info describes an entry of the view.
//
// Ino is the inode number to show. It is the source's number for a directory, for a file
// with one name on the source's own file system, and for their copies in the delta.
// Otherwise it is a generated number, with the highest bit set. It does not change over
// copy-up, rename and restart.
type Info struct {
	Mode   uint32 // type and permission bits, never setuid or setgid in a delta; see User
	Ino    uint64
	Size   int64  // bytes
	Blocks int64  // of 512 bytes
	Nlink  uint32 // names made in the sandbox, at least 1; 0 for an orphan
	UID    uint32
	GID    uint32
	Rdev   uint32
	Atime  unix.Timespec
	Mtime  unix.Timespec
	Ctime  unix.Timespec
	Origin Origin
	ID     FileID
	Shared bool // a source file that may change without an inotify event: it has several names, or is on a network or FUSE file system
	// Borrowed says that the content is another file's, see Transform.Target. It changes
	// without an event, and ID changes with it.
	Borrowed bool
	Mounted  bool // a mount nested in the source: a directory is shown empty and read-only, a file cannot be opened
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
