package fusefs

import (
	"errors"
	"log/slog"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// errnoOf maps the kind of an error without an errno to the errno for the kernel. A hidden
// object must look absent, so Hidden and NotFound are indistinguishable here on purpose.
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

// The replies to a refusal by policy (docs/policy.md).
const (
	absent  = fuse.ENOENT // any operation on a path with permission none
	refused = fuse.EACCES // any other operation without the necessary permission
)

// status maps an error of the layer. An errno in the error takes precedence. ENOSYS is
// replaced, because the kernel would never send the operation again.
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

// fail is status, and also logs internal errors and errors of the host.
func (fs *FS) fail(operation string, p vpath.Path, err error) fuse.Status {
	st := status(err)
	if st == fuse.EIO {
		fs.log.Error("file system operation failed", slog.String("operation", operation),
			slog.String("path", p.String()), slog.Any("error", err))
	}
	return st
}
