package fusefs

import (
	"errors"
	"log/slog"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// errnoOf says what the kernel is told where an error carries no errno of its
// own. A hidden object must look absent, so Hidden and NotFound are
// indistinguishable here on purpose.
var errnoOf = map[errdefs.Kind]syscall.Errno{
	errdefs.Invalid:      syscall.EINVAL,
	errdefs.NotFound:     syscall.ENOENT,
	errdefs.Hidden:       syscall.ENOENT,
	errdefs.Exists:       syscall.EEXIST,
	errdefs.Denied:       syscall.EACCES,
	errdefs.Precondition: syscall.EBUSY,
	errdefs.Exhausted:    syscall.ENOSPC,
	errdefs.Unsupported:  syscall.EOPNOTSUPP,
	errdefs.Unavailable:  syscall.EAGAIN,
	errdefs.Canceled:     syscall.EINTR,
	errdefs.Deadline:     syscall.ETIMEDOUT,
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
		if no, ok = errnoOf[errdefs.KindOf(err)]; !ok {
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
