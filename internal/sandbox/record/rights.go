package sandbox

import (
	"errors"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/hostfile"
	"github.com/agentfense/agentfense/internal/layer"
)

// A program inside may close its files to everybody, with modes such as 0000.
// An ordinary user's command gets at them with capabilities over the user's
// own files, in a user namespace (supervise.RunAsOwner). They are for the
// delta only: in the source the modes hold.

// IsClosed reports whether the layers hold something of which the modes do not
// let its owner read it or change it. For root nothing is closed.
func (s *Sandbox) IsClosed() (bool, error) {
	if os.Geteuid() == 0 {
		return false, nil
	}
	closed, err := isClosed(unix.AT_FDCWD, s.LayersDir(), 0)
	if err != nil {
		return false, hostError("sandbox "+s.Name(), err)
	}
	return closed, nil
}

// maxDepth is how deep isClosed looks by recursion, which costs a descriptor a
// level. A program inside can make a tree of any depth.
const maxDepth = 200

// isClosed looks at the directory name of dir and all below. Deeper than it
// can look it says yes.
func isClosed(dir int, name string, depth int) (bool, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, hostfile.IgnoreAbsent(err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return false, hostfile.IgnoreAbsent(err)
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
		return false, hostfile.IgnoreAbsent(err)
	}
	switch st.Mode & typeBits {
	case unix.S_IFREG:
		return st.Mode&0o400 == 0, nil
	case unix.S_IFDIR:
		if st.Mode&0o700 != 0o700 || depth == maxDepth {
			return true, nil
		}
		return isClosed(dir, name, depth+1)
	}
	return false, nil
}

// sourceUser is whose modes count in the source, nil where the kernel sees to
// it. Errors: Internal.
func sourceUser() (*layer.User, error) {
	caps, err := capabilities()
	if err != nil || os.Geteuid() == 0 || caps[0].Permitted == 0 {
		return nil, err
	}
	return &layer.User{UID: uint32(os.Geteuid())}, nil
}

// asUser calls do with no capability in force, unless we are root.
func asUser(do func() error) error { return withRights(false, do) }

// asOwner calls do, within asUser, with the capabilities we have.
func asOwner(do func() error) error { return withRights(true, do) }

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
		return sets, fault.New(fault.Internal, "capabilities: %w", err)
	}
	return sets, nil
}

func setCapabilities(sets capSets) error {
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0]); err != nil {
		return fault.New(fault.Internal, "capabilities: %w", err)
	}
	return nil
}
