//go:build unix

package safefs

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// IsFull reports whether an error says that the disk or a quota of it is full.
func IsFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// OwnError is an error with agentfense's own files, such as a scratch directory: Exhausted if
// the disk is full, else Internal. It is nil if err is.
func OwnError(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case IsFull(err):
		return errdefs.New(errdefs.Exhausted, "%s: %w", what, err)
	}
	return errdefs.New(errdefs.Internal, "%s: %w", what, err)
}

// Kind returns the kind of an error of the host's file system.
func Kind(err error) errdefs.Kind {
	switch {
	case errdefs.Is(err, errdefs.Invalid), errdefs.Is(err, errdefs.Precondition): // of ReadNamed and similar functions
		return errdefs.KindOf(err)
	case errors.Is(err, fs.ErrNotExist):
		return errdefs.NotFound
	case errors.Is(err, fs.ErrExist), errors.Is(err, unix.ENOTEMPTY):
		return errdefs.Exists
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return errdefs.Denied
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return errdefs.Exhausted
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG):
		return errdefs.Invalid
	case errors.Is(err, unix.ESTALE), errors.Is(err, unix.ENOTCONN), errors.Is(err, unix.EIO):
		return errdefs.Unavailable
	}
	return errdefs.Internal
}
