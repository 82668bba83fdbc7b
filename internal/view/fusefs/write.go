package fusefs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/view/policy"
)

// overwrite runs do, which changes length bytes of a file from offset, if the policy
// permits it.
func (fs *FS) overwrite(id uint64, operation string, c *fuse.Caller, offset, length uint64, do func(*handle) error) fuse.Status {
	n, st := fs.allowed(id, policy.Write, operation, c)
	if !st.Ok() {
		return st
	}
	stale := fs.prefetch.overwrite(n, offset, length)
	defer fs.prefetch.settle(stale)
	h, st := fs.change(n, do)
	if st.Ok() {
		fs.modified(h, c)
	}
	return st
}

// Write is never called: the library calls Writev.
func (fs *FS) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	return fs.Writev(cancel, in, [][]byte{data})
}

// Writev writes through to the delta. The kernel has resolved O_APPEND.
func (fs *FS) Writev(_ <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	fs.stats.count(opWrite)
	var written int
	st := fs.overwrite(in.NodeId, "write", &in.Caller, in.Offset, uint64(in.Size), func(h *handle) error {
		written = 0
		for _, b := range data {
			m, err := h.file.WriteAt(b, int64(in.Offset)+int64(written))
			written += m
			if err != nil {
				if written > 0 {
					return nil
				}
				return err
			}
		}
		fs.wrote(h, written)
		return nil
	})
	return uint32(written), st
}

// Fallocate is fallocate(2).
func (fs *FS) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	fs.stats.count(opFallocate)
	return fs.overwrite(in.NodeId, "fallocate", &in.Caller, in.Offset, in.Length, func(h *handle) error {
		return h.file.Allocate(in.Mode, int64(in.Offset), int64(in.Length))
	})
}

// copyChunk is how much CopyFileRange holds at a time, in bytes.
const copyChunk = 1 << 20

// CopyFileRange copies within the view. It checks the permission of both files.
func (fs *FS) CopyFileRange(_ <-chan struct{}, in *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	fs.stats.count(opCopyFileRange)
	from, st := fs.allowed(in.NodeId, policy.Read, "copy_file_range", &in.Caller)
	if !st.Ok() {
		return 0, st
	}
	src, st := fs.handle(from, false)
	if !st.Ok() {
		return 0, st
	}
	defer fs.fds.release(src)
	length := min(in.Len, copyChunk)
	var written int
	st = fs.overwrite(in.NodeIdOut, "copy_file_range", &in.Caller, in.OffOut, length, func(h *handle) error {
		buf := make([]byte, length)
		size, err := src.file.ReadAt(buf, int64(in.OffIn))
		if err != nil {
			return err
		}
		written, err = h.file.WriteAt(buf[:size], int64(in.OffOut))
		return err
	})
	return uint32(written), st
}

// Fsync makes a file's content durable. An unchanged source file is already.
func (fs *FS) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	fs.stats.count(opFsync)
	n := fs.nodes.get(in.NodeId)
	switch {
	case n == nil:
		return fuse.Status(unix.ESTALE)
	case !n.isRegular() || n.is(flagSource):
		return fuse.OK
	}
	h, st := fs.handle(n, false)
	if !st.Ok() {
		return st
	}
	defer fs.fds.release(h)
	fs.conn.BeginBlocking()
	const dataOnly = 1 // FUSE_FSYNC_FDATASYNC
	if err := h.file.Sync(in.FsyncFlags&dataOnly != 0); err != nil {
		return fs.fail("sync", "", err)
	}
	return fuse.OK
}

// writer is a thread, until the next Conclude.
type writer struct {
	tid uint32
	era uint64 // from 1
}

func (fs *FS) writer(c *fuse.Caller) writer { return writer{c.Pid, fs.era.Load() + 1} }

// modified reports that a file's content changed, once for each writer and handle.
func (fs *FS) modified(h *handle, c *fuse.Caller) {
	writer := fs.writer(c)
	h.mu.Lock()
	known := h.writer == writer
	h.writer = writer
	h.mu.Unlock()
	if known && !fs.watched.Load() {
		return
	}
	if p, ok := fs.nodes.path(h.node); ok {
		fs.report(Change{Path: p, Kind: Modified, PID: int(c.Pid)})
	}
}
