package fusefs

import (
	"os"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/uses"
)

// keepCache makes an open keep the pages that the kernel has (FOPEN_KEEP_CACHE, fuse.h), as it
// does without OPEN.
const keepCache = 1 << 1

// execute is the flag of an open by execve(2): __FMODE_EXEC, linux/fs.h.
const execute = 0x20

// Learn makes the views of a connection record how they are used, the i-th in recorders[i],
// until the end of the mount. From then on OPEN is answered, and READDIRPLUS gives no
// attributes, so the kernel sends each open, and a LOOKUP for each name that is used. Call it
// before a program uses the views. Errors: Precondition if the kernel has already been told
// not to send OPEN.
func Learn(views []*FS, recorders []*uses.Recorder) error {
	for _, fs := range views {
		if fs.stats[opOpen].Load() > 0 {
			return errdefs.New(errdefs.Precondition, "files of the view were opened before: uses can be recorded from the start only")
		}
	}
	for i, fs := range views {
		fs.learning.Store(recorders[i])
	}
	return nil
}

// used records a use of the path p by the thread tid, if uses are recorded.
func (fs *FS) used(p vpath.Path, k uses.Kind, dir bool, tid uint32) {
	if r := fs.learning.Load(); r != nil {
		r.Note(p, k, dir, func() string { return programOf(tid) })
	}
}

// usedNode is used for a node, if it has a name.
func (fs *FS) usedNode(n *node, k uses.Kind, tid uint32) {
	if fs.learning.Load() == nil {
		return
	}
	if p, ok := fs.nodes.path(n); ok {
		fs.used(p, k, n.isDir(), tid)
	}
}

// opened answers OPEN while uses are recorded: the kernel has checked the mode bits.
func (fs *FS) opened(in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	n := fs.nodes.get(in.NodeId)
	if n == nil {
		return fuse.Status(unix.ESTALE)
	}
	k := uses.Read
	switch {
	case in.Flags&uint32(os.O_WRONLY|os.O_RDWR) != 0:
		k = uses.Written
	case in.Flags&execute != 0:
		k = uses.Executed
	}
	fs.usedNode(n, k, in.Pid)
	out.OpenFlags = keepCache
	return fuse.OK
}

// usedMove records a rename. With exchange, both entries are still there.
func (fs *FS) usedMove(from, to vpath.Path, directory, exchange bool, tid uint32) {
	r := fs.learning.Load()
	if r == nil {
		return
	}
	program := func() string { return programOf(tid) }
	old, made := uses.Removed, uses.Created
	if directory {
		made |= uses.Tree
		if exchange || !r.Is(from, uses.Created) {
			old |= uses.Tree
		}
	}
	r.Note(from, old, directory, program)
	r.Note(to, made, directory, program)
}
