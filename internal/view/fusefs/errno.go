package fusefs

import (
	"errors"
	"log/slog"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/vpath"
)

// errnoOf says what the kernel is told where an error carries no errno of its
// own. A hidden object must look absent, so Hidden and NotFound are
// indistinguishable here on purpose.
var errnoOf = map[fault.Kind]syscall.Errno{
	fault.Invalid:      syscall.EINVAL,
	fault.NotFound:     syscall.ENOENT,
	fault.Hidden:       syscall.ENOENT,
	fault.Exists:       syscall.EEXIST,
	fault.Denied:       syscall.EACCES,
	fault.Precondition: syscall.EBUSY,
	fault.Exhausted:    syscall.ENOSPC,
	fault.Unsupported:  syscall.EOPNOTSUPP,
	fault.Unavailable:  syscall.EAGAIN,
	fault.Canceled:     syscall.EINTR,
	fault.Deadline:     syscall.ETIMEDOUT,
}

// What a refusal by policy answers, by what the caller did (DESIGN §3).
const (
	absent  = fuse.ENOENT // whatever names a none path
	refused = fuse.EACCES // whatever the permission does not cover
)

// status maps an error of the layer; the host's own errno comes first. ENOSYS
// would make the kernel switch the operation off for good.
func status(err error) fuse.Status {
	if err == nil {
		return fuse.OK
	}
	var no syscall.Errno
	if !errors.As(err, &no) {
		var ok bool
		if no, ok = errnoOf[fault.KindOf(err)]; !ok {
			no = syscall.EIO
		}
	}
	if no == syscall.ENOSYS {
		no = syscall.EOPNOTSUPP
	}
	return fuse.Status(no)
}

// fail is status, and logs what is a fault of ours or the host's.
func (fs *FS) fail(operation string, p vpath.Path, err error) fuse.Status {
	st := status(err)
	if st == fuse.EIO {
		fs.log.Error("file system operation failed", slog.String("operation", operation),
			slog.String("path", p.String()), slog.Any("error", err))
	}
	return st
}
