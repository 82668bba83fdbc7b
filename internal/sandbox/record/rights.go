package record

import (
	"errors"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// A program inside may close its files to everybody, with modes such as 0000.
// An ordinary user's command gets at them with capabilities over the user's
// own files, in a user namespace (launch.RunAsOwner). They are for the
// delta only: in the source the modes hold.

// IsClosed reports whether the layers hold something of which the modes do not
// let its owner read it or change it. For root nothing is closed.
func (s *Sandbox) IsClosed() (bool, error) {
	if os.Geteuid() == 0 {
		return false, nil
	}
	closed, err := isClosed(unix.AT_FDCWD, s.LayersDir(), 0)
	if err != nil {
		return false, HostError("sandbox "+s.Name(), err)
	}
	return closed, nil
}

// MaxDepth is how deep isClosed looks by recursion, which costs a descriptor a
// level. A program inside can make a tree of any depth.
const MaxDepth = 200

// isClosed looks at the directory name of dir and all below. Deeper than it
// can look it says yes.
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

// SourceUser is whose modes count in the source, nil where the kernel sees to
// it. Errors: Internal.
func SourceUser() (*layer.User, error) {
	caps, err := capabilities()
	if err != nil || os.Geteuid() == 0 || caps[0].Permitted == 0 {
		return nil, err
	}
	return &layer.User{UID: uint32(os.Geteuid())}, nil
}

// AsUser calls do with no capability in force, unless we are root.
func AsUser(do func() error) error { return withRights(false, do) }

// AsOwner calls do, within AsUser, with the capabilities we have.
func AsOwner(do func() error) error { return withRights(true, do) }

// withRights changes what is in force on this thread while do runs.
func withRights(all bool, do func() error) error {
	if os.Geteuid() == 0 {
		return do()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := capabilities()
	if err != nil {
		return err
	}
	want := before
	for i := range want {
		want[i].Effective = 0
		if all {
			want[i].Effective = want[i].Permitted
		}
	}
	if want == before {
		return do()
	}
	if err := setCapabilities(want); err != nil {
		return err
	}
	err = do()
	if restoreErr := setCapabilities(before); restoreErr != nil {
		return errors.Join(err, restoreErr)
	}
	return err
}

// capSets are a thread's capability sets as capget(2) has them, in two halves.
type capSets [2]unix.CapUserData

func capabilities() (capSets, error) {
	var sets capSets
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0]); err != nil {
		return sets, errdefs.New(errdefs.Internal, "capabilities: %w", err)
	}
	return sets, nil
}

func setCapabilities(sets capSets) error {
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0]); err != nil {
		return errdefs.New(errdefs.Internal, "capabilities: %w", err)
	}
	return nil
}

// Parts of a mode.
const (
	TypeBits = unix.S_IFMT
	PermBits = 0o777
	// StickyBits are the permissions a directory takes over: all but setuid
	// and setgid.
	StickyBits = 0o1777
)

// IsDir reports whether mode is that of a directory.
func IsDir(mode uint32) bool { return mode&TypeBits == unix.S_IFDIR }

// DiskKind is safefs.Kind of what a caller waits for. Unavailable would say that
// the server is gone, and have clients try again; a disk that fails is neither.
func DiskKind(err error) errdefs.Kind {
	if kind := safefs.Kind(err); kind != errdefs.Unavailable {
		return kind
	}
	return errdefs.Precondition
}

// UnlessDenied takes what cannot be read for something else.
func UnlessDenied(err error) error {
	if errdefs.Is(err, errdefs.Denied) || errdefs.Is(err, errdefs.NotFound) || errdefs.Is(err, errdefs.Precondition) || errdefs.Is(err, errdefs.Invalid) {
		return nil
	}
	return err
}

// TypeName names the type of file of a mode.
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
