package layer

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// openat2 opens path beneath dir. Errors: those of openat2(2); ELOOP for a
// symbolic link, EXDEV for a mount.
func openat2(dir int, path string, flags int, mode uint32) (int, error) {
	return safefs.Open(dir, path, flags|unix.O_NOFOLLOW, mode)
}

// openDir opens an O_PATH handle on the directory name in dir.
func openDir(dir int, name string) (int, error) {
	return openat2(dir, name, unix.O_PATH|unix.O_DIRECTORY, 0)
}

// openDirAt opens an O_PATH handle on the directory at the relative path rel,
// of any length. "." is dir itself.
func openDirAt(dir int, rel string) (int, error) {
	return safefs.OpenDir(dir, rel, unix.O_PATH|unix.O_NOFOLLOW)
}

// stat has the attributes that statx(2) returns for a file.
type stat struct {
	dev, ino     uint64
	birth        int64 // nanoseconds; 0 if the file system does not report it
	size, blocks int64
	mode         uint32
	nlink        uint32
	uid, gid     uint32
	rdev         uint64
	atime        unix.Timespec
	mtime, ctime unix.Timespec
	mounted      bool   // something is mounted here
	rights       rights // of a source file; set only by callers that need it
}

func (s *stat) kind() uint32    { return s.mode & unix.S_IFMT }
func (s *stat) isDir() bool     { return s.kind() == unix.S_IFDIR }
func (s *stat) isRegular() bool { return s.kind() == unix.S_IFREG }

// unchanged reports whether s and b are the same file with the same content and mode,
// judged by identity and times.
func (s *stat) unchanged(b *stat) bool {
	return s.dev == b.dev && s.ino == b.ino && s.size == b.size && s.mode == b.mode &&
		s.mtime == b.mtime && s.ctime == b.ctime
}

const statMask = unix.STATX_BASIC_STATS | unix.STATX_BTIME

// statAt describes name in dir. It follows no symbolic link and triggers no automount.
func statAt(dir int, name string) (stat, error) {
	return statx(dir, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT)
}

// statFd describes the open file fd.
func statFd(fd int) (stat, error) { return statx(fd, "", unix.AT_EMPTY_PATH) }

func statx(dir int, name string, flags int) (stat, error) {
	var x unix.Statx_t
	for {
		err := unix.Statx(dir, name, flags, statMask, &x)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			return stat{}, err
		}
	}
	s := stat{
		dev: unix.Mkdev(x.Dev_major, x.Dev_minor), ino: x.Ino,
		size: int64(x.Size), blocks: int64(x.Blocks),
		mode: uint32(x.Mode), nlink: x.Nlink, uid: x.Uid, gid: x.Gid,
		rdev:  unix.Mkdev(x.Rdev_major, x.Rdev_minor),
		atime: timespec(x.Atime), mtime: timespec(x.Mtime), ctime: timespec(x.Ctime),
		mounted: x.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0,
	}
	if x.Mask&unix.STATX_BTIME != 0 {
		s.birth = x.Btime.Sec*1e9 + int64(x.Btime.Nsec)
	}
	return s, nil
}

func timespec(t unix.StatxTimestamp) unix.Timespec {
	return unix.Timespec{Sec: t.Sec, Nsec: int64(t.Nsec)}
}

// exists reports whether dir has an entry name, of any type.
func exists(dir int, name string) (bool, error) {
	_, err := statAt(dir, name)
	switch err {
	case nil:
		return true, nil
	case unix.ENOENT:
		return false, nil
	}
	return false, err
}

// readlinkAt returns the target of the symbolic link name in dir.
func readlinkAt(dir int, name string) (string, error) {
	for size := 256; ; size *= 4 {
		buf := make([]byte, size)
		n, err := unix.Readlinkat(dir, name, buf)
		if err != nil {
			return "", err
		}
		if n < size {
			return string(buf[:n]), nil
		}
	}
}

// remoteTypes are file systems whose files change without a local event
// (statfs(2), linux/magic.h).
var remoteTypes = map[uint32]bool{
	unix.NFS_SUPER_MAGIC:    true,
	unix.SMB_SUPER_MAGIC:    true,
	unix.SMB2_SUPER_MAGIC:   true,
	unix.CIFS_SUPER_MAGIC:   true,
	unix.FUSE_SUPER_MAGIC:   true,
	unix.V9FS_MAGIC:         true,
	unix.AFS_SUPER_MAGIC:    true,
	unix.CEPH_SUPER_MAGIC:   true,
	unix.CODA_SUPER_MAGIC:   true,
	unix.AUTOFS_SUPER_MAGIC: true,
}

func isRemote(fd int) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return false, err
	}
	return remoteTypes[uint32(st.Type)], nil
}

// writesInPlace reports whether the file system of fd always overwrites a file's blocks in
// place. That is known of ext4, ext3 and ext2. Others may share blocks or write new ones.
func writesInPlace(fd int) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && st.Type == unix.EXT4_SUPER_MAGIC
}

// asOS turns a descriptor into an *os.File for the caller. The name is for messages only
// and contains no host path.
func asOS(fd int, name string) *os.File { return os.NewFile(uintptr(fd), name) }
