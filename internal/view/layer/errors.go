package layer

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// kindOf maps an errno of the backing file system to a kind of error. errors.As still finds
// the errno, with which fusefs replies.
var kindOf = map[unix.Errno]errdefs.Kind{
	unix.ENOENT:       errdefs.NotFound,
	unix.EEXIST:       errdefs.Exists,
	unix.EACCES:       errdefs.Denied,
	unix.EPERM:        errdefs.Denied,
	unix.EROFS:        errdefs.Denied,
	unix.ENOSPC:       errdefs.Exhausted,
	unix.EDQUOT:       errdefs.Exhausted,
	unix.EMFILE:       errdefs.Exhausted,
	unix.ENFILE:       errdefs.Exhausted,
	unix.ENOMEM:       errdefs.Exhausted,
	unix.EMLINK:       errdefs.Exhausted,
	unix.ENOTEMPTY:    errdefs.Precondition,
	unix.EISDIR:       errdefs.Precondition,
	unix.ENOTDIR:      errdefs.Precondition,
	unix.EXDEV:        errdefs.Precondition,
	unix.ESTALE:       errdefs.Precondition,
	unix.EBADF:        errdefs.Precondition,
	unix.EBUSY:        errdefs.Unavailable,
	unix.EAGAIN:       errdefs.Unavailable,
	unix.EINVAL:       errdefs.Invalid,
	unix.ENAMETOOLONG: errdefs.Invalid,
	unix.ELOOP:        errdefs.Invalid,
	unix.EFBIG:        errdefs.Invalid,
	unix.ENXIO:        errdefs.Unsupported,
	unix.ENOSYS:       errdefs.Unsupported,
	unix.EOPNOTSUPP:   errdefs.Unsupported,
}

// wrap gives an errno its kind and the text "operation path: cause". It returns an error of
// errdefs, and nil, unchanged.
func wrap(operation string, p vpath.Path, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*errdefs.Error](err); ok {
		return err
	}
	kind := errdefs.Internal
	if no, ok := errors.AsType[unix.Errno](err); ok {
		kind = kindOf[no]
	}
	return errdefs.New(kind, "%s %s: %w", operation, p, err)
}
