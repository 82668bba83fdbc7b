package record

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// A program inside may make its files inaccessible to everybody, with modes such as 0000.
// An ordinary user's command accesses them with capabilities over the user's own files, in
// a user namespace (launch.RunAsOwner). It uses the capabilities for the delta only. In the
// source the modes apply.

// IsClosed reports whether the layers, or those of a mount, have an entry that its owner may not read or change
// because of its mode. It returns false for root.
func (s *Sandbox) IsClosed() (bool, error) {
	if os.Geteuid() == 0 {
		return false, nil
	}
	for _, part := range s.Parts() {
		closed, err := isClosed(unix.AT_FDCWD, part.LayersDir(), 0)
		if err != nil {
			return false, HostError("sandbox "+s.Name(), err)
		}
		if closed {
			return true, nil
		}
	}
	return false, nil
}

// MaxDepth is how deep isClosed looks. It uses a descriptor for each level, and a program
// inside can make a tree of any depth.
const MaxDepth = 200

// isClosed examines the directory name of dir and everything below. It returns true for a
// tree that is too deep.
func isClosed(dir int, name string, depth int) (bool, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, safefs.IgnoreAbsent(err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return false, safefs.IgnoreAbsent(err)
	}
	for _, n := range names {
		closed, err := isClosedAt(fd, n, depth)
		if closed || err != nil {
			return closed, err
		}
	}
	return false, nil
}

func isClosedAt(dir int, name string, depth int) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, safefs.IgnoreAbsent(err)
	}
	switch st.Mode & TypeBits {
	case unix.S_IFREG:
		return st.Mode&0o400 == 0, nil
	case unix.S_IFDIR:
		if st.Mode&0o700 != 0o700 || depth == MaxDepth {
			return true, nil
		}
		return isClosed(dir, name, depth+1)
	}
	return false, nil
}

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
