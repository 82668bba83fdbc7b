//go:build unix

package hostfile

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
)

// Kind says what a caller can do about an error of the host's file system.
func Kind(err error) fault.Kind {
	switch {
	case fault.Is(err, fault.Invalid), fault.Is(err, fault.Precondition): // of ReadNamed and its like
		return fault.KindOf(err)
	case errors.Is(err, fs.ErrNotExist):
		return fault.NotFound
	case errors.Is(err, fs.ErrExist), errors.Is(err, unix.ENOTEMPTY):
		return fault.Exists
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return fault.Denied
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return fault.Exhausted
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG):
		return fault.Invalid
	case errors.Is(err, unix.ESTALE), errors.Is(err, unix.ENOTCONN), errors.Is(err, unix.EIO):
		return fault.Unavailable
	}
	return fault.Internal
}
