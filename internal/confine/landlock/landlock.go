// Package landlock restricts threads, and what they start, to some files and directories, by the
// kernel's Landlock. It is a second protection behind mounts, users and system-call filters.
package landlock

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A attributes is struct landlock_ruleset_attr (linux/landlock.h), in its first version:
// it restricts neither the network nor signals.
type attributes struct{ files uint64 }

// pathBeneath is struct landlock_path_beneath_attr, which is packed.
type pathBeneath struct {
	allowed uint64
	parent  int32
	_       int32 // the kernel reads 12 bytes
}

const (
	readRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE
	fileRights = readRights | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	// Listing directories is not restricted: it would have to be allowed for the root, and
	// so for everything. Neither is IOCTL_DEV: inside there are only harmless devices and
	// terminals.
	allRights = fileRights | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER
)

// Version 1 refuses every rename between directories, and version 2 does not know TRUNCATE.
const (
	withRefer    = 2
	withTruncate = 3
)

// Version returns the version of the kernel's Landlock, or 0 if there is none or it
// is too old.
func Version() int {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 || n < withRefer {
		return 0
	}
	return int(n)
}

// Place is a file, or a directory with all that is in it.
type Place struct {
	Path     string
	Writable bool // else it can be read and executed
}

// Restrict restricts the calling thread, and what it starts, to places. version is that of
// Version. The thread needs no_new_privs, or CAP_SYS_ADMIN in its user namespace.
func Restrict(version int, places ...Place) error {
	handled := uint64(allRights)
	if version < withTruncate {
		handled &^= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	attr := attributes{handled}
	ruleset, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return errno
	}
	defer unix.Close(int(ruleset))
	for _, p := range places {
		if err := p.allow(int(ruleset), handled); err != nil {
			return err
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// allow adds a rule for a place. A place that another mount covers is not reachable and
// needs no rule.
func (p Place) allow(ruleset int, handled uint64) error {
	fd, err := unix.Open(p.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Statx_t // without a request to a server
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st); err != nil {
		return err
	}
	rights := uint64(readRights)
	if p.Writable {
		rights = allRights
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= fileRights
	}
	const beneath = 1 // LANDLOCK_RULE_PATH_BENEATH
	rule := pathBeneath{allowed: rights & handled, parent: int32(fd)}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), beneath, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
