package fusefs

import (
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// FS has a method for every request. Embedding a default would hide a request that a new
// version of the library adds.
var _ fuse.RawFileSystem = (*FS)(nil)

// String names the file system to the library.
func (fs *FS) String() string { return fsName }

// SetDebug does nothing: a debug log must not contain paths of hidden files.
func (fs *FS) SetDebug(bool) {}

// Init is not called: only the library's own server calls it.
func (fs *FS) Init(*fuse.Server) {}

// OnUnmount is not called either.
func (fs *FS) OnUnmount() {}

// Statx is not implemented: the kernel then asks GetAttr, which masks.
func (fs *FS) Statx(<-chan struct{}, *fuse.StatxIn, *fuse.StatxOut) fuse.Status { return fuse.ENOSYS }

// GetLk is not called: the kernel handles locks itself.
func (fs *FS) GetLk(<-chan struct{}, *fuse.LkIn, *fuse.LkOut) fuse.Status { return fuse.ENOSYS }

// SetLk is not called either.
func (fs *FS) SetLk(<-chan struct{}, *fuse.LkIn) fuse.Status { return fuse.ENOSYS }

// SetLkw is not called either.
func (fs *FS) SetLkw(<-chan struct{}, *fuse.LkIn) fuse.Status { return fuse.ENOSYS }

// GetXAttr is not implemented: there are no extended attributes.
func (fs *FS) GetXAttr(<-chan struct{}, *fuse.InHeader, string, []byte) (uint32, fuse.Status) {
	return 0, fuse.ENOSYS
}

// ListXAttr is not implemented either.
func (fs *FS) ListXAttr(<-chan struct{}, *fuse.InHeader, []byte) (uint32, fuse.Status) {
	return 0, fuse.ENOSYS
}

// SetXAttr is not implemented either.
func (fs *FS) SetXAttr(<-chan struct{}, *fuse.SetXAttrIn, string, []byte) fuse.Status {
	return fuse.ENOSYS
}

// RemoveXAttr is not implemented either.
func (fs *FS) RemoveXAttr(<-chan struct{}, *fuse.InHeader, string) fuse.Status { return fuse.ENOSYS }

// What statfs(2) shows without a quota: enough room, and no figure of the host's disk.
const (
	unboundedBytes  = 1 << 50
	unboundedInodes = 1 << 32
)

// StatFs shows the quota.
func (fs *FS) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	fs.stats.count(opStatFs)
	u := fs.o.Layer.Statfs()
	total, used := u.Quota.Bytes, u.Bytes
	if total == 0 {
		total, used = unboundedBytes, 0
	}
	files, inodes := u.Quota.Inodes, u.Inodes
	if files == 0 {
		files, inodes = unboundedInodes, 0
	}
	free := max(total-used, 0) / blockSize
	*out = fuse.StatfsOut{
		Blocks: uint64(total / blockSize), Bfree: uint64(free), Bavail: uint64(free),
		Files: uint64(files), Ffree: uint64(max(files-inodes, 0)),
		Bsize: blockSize, Frsize: blockSize, NameLen: vpath.NameMax,
	}
	return fuse.OK
}
