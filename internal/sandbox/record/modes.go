package record

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// Parts of a mode.
const (
	TypeBits = unix.S_IFMT
	PermBits = 0o777
	// StickyBits are the permission bits that a directory takes over: all except setuid and
	// setgid.
	StickyBits = 0o1777
)

// IsDir reports whether mode is that of a directory.
func IsDir(mode uint32) bool { return mode&TypeBits == unix.S_IFDIR }

// DiskKind is safefs.Kind, with Precondition instead of Unavailable: clients of a server
// would take Unavailable for a lost server and try again, which does not help with a
// failing disk.
func DiskKind(err error) errdefs.Kind {
	if kind := safefs.Kind(err); kind != errdefs.Unavailable {
		return kind
	}
	return errdefs.Precondition
}

// UnlessDenied returns nil for an error which means that an entry cannot be read (Denied,
// NotFound, Precondition, Invalid), and other errors unchanged.
func UnlessDenied(err error) error {
	if errdefs.Is(err, errdefs.Denied) || errdefs.Is(err, errdefs.NotFound) || errdefs.Is(err, errdefs.Precondition) || errdefs.Is(err, errdefs.Invalid) {
		return nil
	}
	return err
}

// TypeName returns the name of a mode's file type.
func TypeName(mode uint32) string {
	switch mode & TypeBits {
	case unix.S_IFREG:
		return "file"
	case unix.S_IFDIR:
		return "directory"
	case unix.S_IFLNK:
		return "symbolic link"
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFSOCK:
		return "socket"
	}
	return "device"
}
