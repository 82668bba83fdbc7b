//go:build linux

package safefs

import "golang.org/x/sys/unix"

// MakePrivateDir creates the directory name in dir with mode 0700, independent of the umask, a
// setgid parent and a default ACL. It does not change an existing directory.
func MakePrivateDir(dir int, name string) error {
	err := unix.Mkdirat(dir, name, 0o700)
	if err == unix.EEXIST {
		return nil
	}
	if err != nil {
		return err
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, acl := range []string{"system.posix_acl_default", "system.posix_acl_access"} {
		err := unix.Fremovexattr(fd, acl)
		if err != nil && err != unix.ENODATA && err != unix.EOPNOTSUPP {
			return err
		}
	}
	return unix.Fchmod(fd, 0o700)
}

// Unlink removes the file name in dir. It succeeds if the file does not exist.
func Unlink(dir int, name string) error {
	return IgnoreAbsent(unix.Unlinkat(dir, name, 0))
}
