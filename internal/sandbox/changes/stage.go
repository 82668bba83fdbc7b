package changes

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// Staged is a complete new file in the source's file system that is not placed yet.
type Staged struct {
	File  *os.File
	named bool // it has the entry's temporary name, else no name
	// Sum is the SHA-256 of its content in hex, if it is checked.
	Sum string
}

// Look has the attributes of a new entry of the source.
type Look struct {
	Mode  uint32 // permission bits
	Mtime unix.Timespec
	// Before is the replaced file, from which the new one takes the owner and the extended
	// attributes. With nil the owner is that of the directory.
	Before *unix.Stat_t
}

// Stage writes the content of src to a new file in the entry's directory.
func (e Entry) Stage(src *os.File, l Look) (*Staged, error) {
	s, err := e.openStaged()
	if err != nil {
		return nil, err
	}
	err = copyContent(s.File, src)
	if err == nil && l.Before != nil {
		err = e.copyAttributes(s.File)
	}
	if err == nil {
		err = e.setAttributes(int(s.File.Fd()), l, unix.Fchmod)
	}
	if err != nil {
		s.Close()
		return nil, errors.Join(err, e.RemoveIfNamed(s))
	}
	return s, nil
}

func (e Entry) openStaged() (*Staged, error) {
	if !e.tree.plain {
		fd, err := safefs.Open(e.Dir, ".", unix.O_TMPFILE|unix.O_RDWR, 0o600)
		if err == nil {
			return &Staged{File: os.NewFile(uintptr(fd), e.temp)}, nil
		}
		if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EINVAL) {
			return nil, err
		}
	}
	fd, err := safefs.Open(e.Dir, e.temp, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return &Staged{File: os.NewFile(uintptr(fd), e.temp), named: true}, nil
}

// Close closes the staged file.
func (s *Staged) Close() { s.File.Close() }

// RemoveIfNamed removes the staged file, unless it has no name.
func (e Entry) RemoveIfNamed(s *Staged) error {
	if !s.named {
		return nil
	}
	return e.removeTemp()
}

// Link makes the entry another name of the staged file, in one step. Errors: ErrMoved.
func (e Entry) Link(s *Staged, before *unix.Stat_t) error {
	return e.put(before, func(dir int, name string) error {
		return unix.Linkat(unix.AT_FDCWD, safefs.ProcPath(int(s.File.Fd())), dir, name, unix.AT_SYMLINK_FOLLOW)
	})
}

// Place gives the staged file the entry's name, in one step. Errors: ErrMoved.
func (e Entry) Place(s *Staged, before *unix.Stat_t) error {
	if !s.named {
		return e.Link(s, before)
	}
	s.named = false
	if before != nil {
		return e.swap(before)
	}
	// Link and unlink, because a rename could replace an entry.
	err := unix.Linkat(e.Dir, e.temp, e.Dir, e.Name, 0)
	if errors.Is(err, unix.EEXIST) {
		err = ErrMoved
	}
	return errors.Join(err, e.removeTemp())
}

// setAttributes gives the new entry, open as fd, its owner, mode and time.
func (e Entry) setAttributes(fd int, l Look, chmod func(fd int, mode uint32) error) error {
	if err := e.chown(fd, l); err != nil {
		return err
	}
	if err := chmod(fd, l.Mode); err != nil {
		return err
	}
	return setMtime(fd, l.Mtime)
}

// setMtime sets the time of the last change of an open file.
func setMtime(fd int, mtime unix.Timespec) error {
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, mtime}
	err := unix.UtimesNanoAt(fd, "", times, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.EINVAL) { // before Linux 5.8
		err = unix.UtimesNanoAt(unix.AT_FDCWD, safefs.ProcPath(fd), times, 0)
	}
	return err
}

// chmodPath changes the mode of a file that is open as a path only (O_PATH).
func chmodPath(fd int, mode uint32) error { return unix.Chmod(safefs.ProcPath(fd), mode) }

// chown sets the owner. If root applies, it is the owner of the replaced file or of the
// directory. If an ordinary user applies, the user owns the file. Its group is that of the
// replaced file, if the user is a member, as after a write. A new file has the user's
// group, or that of a setgid directory.
func (e Entry) chown(fd int, l Look) error {
	if os.Geteuid() != 0 {
		return keepGroup(fd, l.Before)
	}
	owner := l.Before
	if owner == nil {
		owner = &unix.Stat_t{}
		if err := unix.Fstat(e.Dir, owner); err != nil {
			return err
		}
	}
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil || now.Uid == owner.Uid && now.Gid == owner.Gid {
		return err // as most often, and a change of an inode costs more
	}
	return unix.Fchownat(fd, "", int(owner.Uid), int(owner.Gid), unix.AT_EMPTY_PATH)
}

// keepGroup gives the file, open as fd, the group of before, if the user may do that.
func keepGroup(fd int, before *unix.Stat_t) error {
	var now unix.Stat_t
	if before == nil {
		return nil
	}
	if err := unix.Fstat(fd, &now); err != nil || now.Gid == before.Gid {
		return err
	}
	err := unix.Fchownat(fd, "", -1, int(before.Gid), unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) { // EINVAL: in a user namespace
		return nil
	}
	return err
}

// copyAttributes copies the extended attributes of the replaced entry, which the delta does
// not have. It omits file capabilities and signatures, which do not apply to new content.
func (e Entry) copyAttributes(to *os.File) error {
	fd, err := safefs.Open(e.Dir, e.Name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return movedIfAbsent(err)
	}
	defer unix.Close(fd)
	from := safefs.ProcPath(fd)
	names, err := listAttributes(from)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !isKeptAttribute(name) {
			continue
		}
		value, err := getAttribute(from, name)
		if err == nil {
			err = unix.Fsetxattr(int(to.Fd()), name, value, 0)
		}
		if errors.Is(err, unix.EINVAL) && name == accessControlList {
			// In a user namespace only the user is mapped.
			return errdefs.New(errdefs.Unsupported, "its access control list names other users: apply it when the sandbox has no file left that its owner may not read")
		}
		if err != nil && !errors.Is(err, unix.ENODATA) {
			return fmt.Errorf("attribute %s: %w", name, err)
		}
	}
	return nil
}

// isKeptAttribute reports whether an extended attribute belongs to a file as a whole.
func isKeptAttribute(name string) bool {
	return strings.HasPrefix(name, "user.") || name == accessControlList
}

// accessControlList is the extended attribute with a file's POSIX ACL.
const accessControlList = "system.posix_acl_access"

func listAttributes(path string) ([]string, error) {
	buf := make([]byte, 64<<10) // XATTR_LIST_MAX, linux/limits.h
	n, err := unix.Listxattr(path, buf)
	if errors.Is(err, unix.EOPNOTSUPP) || n == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00"), nil
}

func getAttribute(path, name string) ([]byte, error) {
	buf := make([]byte, 64<<10) // XATTR_SIZE_MAX, linux/limits.h
	n, err := unix.Getxattr(path, name, buf)
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}

// MakeDir makes the entry an empty directory with its owner and mode. An inherited setgid
// bit stays.
func (e Entry) MakeDir(l Look, before *unix.Stat_t) error {
	if err := unix.Mkdirat(e.Dir, e.temp, 0o700); err != nil {
		return err
	}
	if err := e.setDirAttributes(l); err != nil {
		return errors.Join(err, e.removeTemp())
	}
	if before != nil {
		return e.swap(before)
	}
	err := e.rename(e.temp, e.Name, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) {
		// An empty directory replaces only an empty directory.
		err = e.rename(e.temp, e.Name, 0)
	}
	if err != nil {
		return errors.Join(movedIfAbsent(err), e.removeTemp())
	}
	return nil
}

func (e Entry) setDirAttributes(l Look) error {
	fd, err := safefs.Open(e.Dir, e.temp, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := e.chown(fd, Look{}); err != nil {
		return err
	}
	return chmodKeepSetgid(fd, l.Mode)
}

// Chmod changes the permission bits of the entry, if it still is before. A directory keeps
// its setgid bit. Errors: ErrMoved.
func (e Entry) Chmod(before *unix.Stat_t, mode uint32) error {
	fd, err := safefs.Open(e.Dir, e.Name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return movedIfAbsent(err)
	}
	defer unix.Close(fd)
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil {
		return err
	}
	if now.Mode&unix.S_IFMT == unix.S_IFDIR {
		if now.Dev != before.Dev || now.Ino != before.Ino || now.Mode != before.Mode {
			return ErrMoved
		}
		return chmodKeepSetgid(fd, mode)
	}
	if !IsVersion(before, &now) {
		return ErrMoved
	}
	return chmodPath(fd, mode)
}

func chmodKeepSetgid(fd int, mode uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	return chmodPath(fd, mode|st.Mode&unix.S_ISGID)
}

// MakeLink makes the entry a symbolic link.
func (e Entry) MakeLink(target string, before *unix.Stat_t) error {
	return e.put(before, func(dir int, name string) error {
		if err := unix.Symlinkat(target, dir, name); err != nil {
			return err
		}
		return e.setNameAttributes(dir, name, func(fd int) error { return e.chown(fd, Look{Before: before}) })
	})
}

// MakeFIFO makes the entry a FIFO.
func (e Entry) MakeFIFO(l Look) error {
	return e.put(l.Before, func(dir int, name string) error {
		if err := unix.Mknodat(dir, name, unix.S_IFIFO|0o600, 0); err != nil {
			return err
		}
		return e.setNameAttributes(dir, name, func(fd int) error { return e.setAttributes(fd, l, chmodPath) })
	})
}

// setNameAttributes opens the new entry name and calls set. If that fails it removes the
// entry.
func (e Entry) setNameAttributes(dir int, name string, set func(fd int) error) error {
	fd, err := safefs.Open(dir, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err == nil {
		err = set(fd)
		unix.Close(fd)
	}
	if err != nil {
		return errors.Join(err, unix.Unlinkat(dir, name, 0))
	}
	return nil
}

// blockBytes is the unit of st_blocks, stat(2).
const blockBytes = 512

// copyContent copies src to the empty dst. It shares blocks if the file system can, else it
// copies each extent, so that holes stay.
func copyContent(dst, src *os.File) error {
	if unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(src.Fd()), &st); err != nil {
		return err
	}
	if st.Blocks*blockBytes >= st.Size {
		return copyRange(dst, src, 0, st.Size) // without holes, as most files
	}
	size, at := st.Size, int64(0)
	for at < size {
		data, err := src.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return dst.Truncate(size) // a hole to the end
		}
		if err != nil {
			return err
		}
		if at, err = src.Seek(data, unix.SEEK_HOLE); err != nil {
			return err
		}
		if err := copyRange(dst, src, data, at); err != nil {
			return err
		}
	}
	if at > size { // it grew
		return dst.Truncate(size)
	}
	return nil
}

// copyRange copies in the kernel, or through a buffer where the kernel cannot.
func copyRange(dst, src *os.File, from, to int64) error {
	for from < to {
		in, out := from, from
		n, err := unix.CopyFileRange(int(src.Fd()), &in, int(dst.Fd()), &out, int(min(to-from, 1<<30)), 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || n == 0:
			return copyBuffered(dst, src, from, to)
		default:
			from += int64(n)
		}
	}
	return nil
}

func copyBuffered(dst, src *os.File, from, to int64) error {
	if _, err := src.Seek(from, io.SeekStart); err != nil {
		return err
	}
	if _, err := dst.Seek(from, io.SeekStart); err != nil {
		return err
	}
	_, err := io.CopyN(dst, src, to-from)
	return err
}
