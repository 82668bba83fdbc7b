package layer

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/vpath"
)

// kindOf says which fault an errno of the backing file system is. The errno
// itself stays reachable by errors.As, and fusefs answers with it.
var kindOf = map[unix.Errno]fault.Kind{
	unix.ENOENT:       fault.NotFound,
	unix.EEXIST:       fault.Exists,
	unix.EACCES:       fault.Denied,
	unix.EPERM:        fault.Denied,
	unix.EROFS:        fault.Denied,
	unix.ENOSPC:       fault.Exhausted,
	unix.EDQUOT:       fault.Exhausted,
	unix.EMFILE:       fault.Exhausted,
	unix.ENFILE:       fault.Exhausted,
	unix.ENOMEM:       fault.Exhausted,
	unix.EMLINK:       fault.Exhausted,
	unix.ENOTEMPTY:    fault.Precondition,
	unix.EISDIR:       fault.Precondition,
	unix.ENOTDIR:      fault.Precondition,
	unix.EXDEV:        fault.Precondition,
	unix.ESTALE:       fault.Precondition,
	unix.EBADF:        fault.Precondition,
	unix.EBUSY:        fault.Unavailable,
	unix.EAGAIN:       fault.Unavailable,
	unix.EINVAL:       fault.Invalid,
	unix.ENAMETOOLONG: fault.Invalid,
	unix.ELOOP:        fault.Invalid,
	unix.EFBIG:        fault.Invalid,
	unix.ENXIO:        fault.Unsupported,
	unix.ENOSYS:       fault.Unsupported,
	unix.EOPNOTSUPP:   fault.Unsupported,
}

// wrap gives a bare errno its kind and the text "operation path: cause". A
// fault passes as it is; nil stays nil.
func wrap(operation string, p vpath.Path, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	kind := fault.Internal
	if no, ok := errors.AsType[unix.Errno](err); ok {
		kind = kindOf[no]
	}
	return fault.New(kind, "%s %s: %w", operation, p, err)
}
