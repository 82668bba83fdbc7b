package githistory

import (
	"errors"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// The rights that Landlock restricts for a walled git, which never needs to write.
const (
	wallFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE
	wallRead = wallFile | unix.LANDLOCK_ACCESS_FS_READ_DIR
)

// programs are the places of git itself.
var programs = []string{"/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/dev/null"}

// restrictThread restricts the calling thread and all that it starts, permanently, to
// reading the objects, the scratch directory and programs. Errors: Unsupported if the
// kernel has no Landlock.
func (o Objects) restrictThread(scratch, git string) error {
	handled := uint64(wallRead) // struct landlock_ruleset_attr, as of its first version
	ruleset, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&handled)), unsafe.Sizeof(handled), 0)
	if errno != 0 {
		return errdefs.New(errdefs.Unsupported, "git: the kernel has no Landlock to confine it: %w", errno)
	}
	defer unix.Close(int(ruleset))
	for _, dir := range o {
		if err := allow(int(ruleset), int(dir.Fd())); err != nil {
			return errdefs.New(errdefs.Internal, "git: landlock: %w", err)
		}
	}
	for _, path := range append([]string{scratch, filepath.Dir(git)}, programs...) {
		if err := allowPath(int(ruleset), path); err != nil {
			return errdefs.New(errdefs.Internal, "git: landlock: %s: %w", path, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return errdefs.New(errdefs.Internal, "git: %w", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0, 0); errno != 0 {
		return errdefs.New(errdefs.Unsupported, "git: landlock: %w", errno)
	}
	return nil
}

// allowPath allows reading and executing path and everything below, if it exists.
func allowPath(ruleset int, path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return allow(ruleset, fd)
}

// allow allows reading and executing fd and everything below.
func allow(ruleset, fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	rule := struct { // landlock_path_beneath_attr, which is packed
		allowed uint64
		parent  int32
		_       int32 // the kernel reads 12 bytes
	}{wallRead, int32(fd), 0}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rule.allowed = wallFile
	}
	const pathBeneath = 1 // LANDLOCK_RULE_PATH_BENEATH
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), pathBeneath, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
