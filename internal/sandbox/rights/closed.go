package rights

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// IsClosed reports whether the layers in the directory layers have an entry that its owner may
// not read or change because of its mode. It returns false for root. Errors: those of the host.
func IsClosed(layers string) (bool, error) {
	if os.Geteuid() == 0 {
		return false, nil
	}
	return isClosed(unix.AT_FDCWD, layers, 0)
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
	switch st.Mode & unix.S_IFMT {
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
