package fusefs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/view/policy"
)

// allowed returns the node with the number id if the policy permits at least p on it. This
// check is in addition to the mode bits.
func (fs *FS) allowed(id uint64, p policy.Permission, operation string, c *fuse.Caller) (*node, fuse.Status) {
	n := fs.nodes.get(id)
	if n == nil {
		return nil, fuse.Status(unix.ESTALE)
	}
	if fs.usable(n) < p {
		fs.denyNode(n, operation, c)
		return nil, refused
	}
	return n, fuse.OK
}

// Read reads from a file. It starts stores of small siblings if a program seems to read the
// files of the directory in order.
func (fs *FS) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	fs.stats.count(opRead)
	n, st := fs.allowed(in.NodeId, policy.Read, "read", &in.Caller)
	if !st.Ok() {
		return nil, st
	}
	quiet := fs.prefetch.touch(n)
	h, st := fs.handle(n, false)
	if !st.Ok() {
		return nil, st
	}
	size, err := h.file.Pread(buf, int64(in.Offset))
	fs.fds.release(h)
	if err != nil {
		return nil, status(err)
	}
	if in.Offset == 0 && size < len(buf) {
		// The kernel now has the whole file and will rarely send a READ again.
		if !h.file.Writable() {
			fs.fds.drop(n)
		}
		if quiet {
			fs.prefetch.after(n)
		}
	}
	return content(buf[:size]), fuse.OK
}

// content is the result of a READ, in the buffer of the reply if the library provided it.
type content []byte

// Bytes returns the content.
func (c content) Bytes([]byte) ([]byte, fuse.Status) { return c, fuse.OK }

// Size returns the number of bytes.
func (c content) Size() int { return len(c) }

// Done does nothing.
func (c content) Done() {}

// Readv copies the content to the buffers of the reply.
func (c content) Readv(dst [][]byte) (int, fuse.Status) {
	n := 0
	for _, d := range dst {
		if n < len(c) && &d[0] != &c[n] {
			copy(d, c[n:])
		}
		n += len(d)
	}
	return min(n, len(c)), fuse.OK
}

// Lseek finds data and holes.
func (fs *FS) Lseek(_ <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	fs.stats.count(opLseek)
	n, st := fs.allowed(in.NodeId, policy.Read, "lseek", &in.Caller)
	if !st.Ok() {
		return st
	}
	h, st := fs.handle(n, false)
	if !st.Ok() {
		return st
	}
	defer fs.fds.release(h)
	offset, err := h.file.Seek(int64(in.Offset), int(in.Whence))
	if err != nil {
		return status(err)
	}
	out.Offset = uint64(offset)
	return fuse.OK
}

// Readlink returns a link's target, which the kernel then keeps.
func (fs *FS) Readlink(_ <-chan struct{}, in *fuse.InHeader) ([]byte, fuse.Status) {
	fs.stats.count(opReadlink)
	n, st := fs.allowed(in.NodeId, policy.Read, "readlink", &in.Caller)
	if !st.Ok() {
		return nil, st
	}
	fs.moves.RLock()
	defer fs.moves.RUnlock()
	if o := fs.orphan(n); o != nil {
		target, err := o.Readlink()
		return []byte(target), status(err)
	}
	p, ok := fs.nodes.path(n)
	if !ok {
		return nil, fuse.Status(unix.ESTALE)
	}
	target, err := fs.o.Layer.Readlink(p)
	if err != nil {
		return nil, fs.fail("readlink", p, err)
	}
	return []byte(target), fuse.OK
}

// Ioctl refuses every request.
func (fs *FS) Ioctl(_ <-chan struct{}, in *fuse.IoctlIn, _ []byte, _ *fuse.IoctlOut, _ []byte) fuse.Status {
	if _, st := fs.allowed(in.NodeId, policy.Read, "ioctl", &in.Caller); !st.Ok() {
		return st
	}
	return fuse.Status(unix.ENOTTY)
}
