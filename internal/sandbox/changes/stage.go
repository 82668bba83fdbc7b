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

// Staged is a whole new file of the source that has no place in it yet.
type Staged struct {
	File  *os.File
	named bool // it stands under the entry's temporary name, else it has none
	// Sum is the SHA-256 of its content in hex, where that is checked.
	Sum string
}

// Look is how a new entry of the source looks besides its content.
type Look struct {
	Mode  uint32 // permission bits
	Mtime unix.Timespec
	// Before is the file that is replaced; its owner and its extended
	// attributes stay. Nil: the owner is that of the directory.
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
		err = e.dress(int(s.File.Fd()), l)
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

// Link gives the staged file the entry's name, too, in one step. Errors:
// ErrMoved.
func (e Entry) Link(s *Staged, before *unix.Stat_t) error {
	return e.put(before, func(dir int, name string) error {
		return unix.Linkat(unix.AT_FDCWD, safefs.ProcPath(int(s.File.Fd())), dir, name, unix.AT_SYMLINK_FOLLOW)
	})
}

// Place gives the file that was staged at the entry its name, in one step.
// Errors: ErrMoved.
func (e Entry) Place(s *Staged, before *unix.Stat_t) error {
	if !s.named {
		return e.Link(s, before)
	}
	s.named = false
	if before != nil {
		return e.swap(before)
	}
	// Link and unlink instead of a rename, which might replace.
	err := unix.Linkat(e.Dir, e.temp, e.Dir, e.Name, 0)
	if errors.Is(err, unix.EEXIST) {
		err = ErrMoved
	}
	return errors.Join(err, e.removeTemp())
}

// dress gives the new entry open as fd its owner, mode and time.
func (e Entry) dress(fd int, l Look) error {
	if err := e.chown(fd, l); err != nil {
		return err
	}
	if err := unix.Chmod(safefs.ProcPath(fd), l.Mode); err != nil {
		return err
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, l.Mtime}
	return unix.UtimesNanoAt(unix.AT_FDCWD, safefs.ProcPath(fd), times, 0)
}

// chown gives what root makes to whom the replaced file or the directory
// belongs. What an ordinary user makes is the user's, in the group of the file it
// replaces where the user is in it, as after a write; a new file has the user's own
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
	return unix.Fchownat(fd, "", int(owner.Uid), int(owner.Gid), unix.AT_EMPTY_PATH)
}

// keepGroup gives the file open as fd the group of before, if the user may.
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

// copyAttributes carries the extended attributes of the entry that is
// replaced over to its successor: the delta never had them. Capabilities of
// the file and signatures of its content do not go with new content.
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
		if !strings.HasPrefix(name, "user.") && name != accessControlList {
			continue
		}
		value, err := getAttribute(from, name)
		if err == nil {
			err = unix.Fsetxattr(int(to.Fd()), name, value, 0)
		}
		if errors.Is(err, unix.EINVAL) && name == accessControlList {
			// In a user namespace there is nobody but the user.
			return errdefs.New(errdefs.Unsupported, "its access control list names others: apply it once the sandbox has no file left that is closed to its owner")
		}
		if err != nil && !errors.Is(err, unix.ENODATA) {
			return fmt.Errorf("attribute %s: %w", name, err)
		}
	}
	return nil
}

// accessControlList is the attribute in which a file's POSIX ACL is.
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

// MakeDir makes the entry an empty directory, whole with its owner and mode.
// The setgid bit that it inherits stays.
func (e Entry) MakeDir(l Look, before *unix.Stat_t) error {
	if err := unix.Mkdirat(e.Dir, e.temp, 0o700); err != nil {
		return err
	}
	if err := e.dressDir(l); err != nil {
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

func (e Entry) dressDir(l Look) error {
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

// Chmod gives the entry, if it still is before, other permission bits. A
// directory keeps its setgid bit. Errors: ErrMoved.
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
	return unix.Chmod(safefs.ProcPath(fd), mode)
}

func chmodKeepSetgid(fd int, mode uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	return unix.Chmod(safefs.ProcPath(fd), mode|st.Mode&unix.S_ISGID)
}

// MakeLink makes the entry a symbolic link.
func (e Entry) MakeLink(target string, before *unix.Stat_t) error {
	return e.put(before, func(dir int, name string) error {
		if err := unix.Symlinkat(target, dir, name); err != nil {
			return err
		}
		return e.dressName(dir, name, func(fd int) error { return e.chown(fd, Look{Before: before}) })
	})
}

// MakeFIFO makes the entry a FIFO.
func (e Entry) MakeFIFO(l Look) error {
	return e.put(l.Before, func(dir int, name string) error {
		if err := unix.Mknodat(dir, name, unix.S_IFIFO|0o600, 0); err != nil {
			return err
		}
		return e.dressName(dir, name, func(fd int) error { return e.dress(fd, l) })
	})
}

// dressName opens what was just made as name and dresses it, or takes it away
// again.
func (e Entry) dressName(dir int, name string, dress func(fd int) error) error {
	fd, err := safefs.Open(dir, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err == nil {
		err = dress(fd)
		unix.Close(fd)
	}
	if err != nil {
		return errors.Join(err, unix.Unlinkat(dir, name, 0))
	}
	return nil
}

// copyContent copies src to the empty dst: by sharing the blocks where the
// file system can, else extent by extent, so that holes stay holes.
func copyContent(dst, src *os.File) error {
	if unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil {
		return nil
	}
	size, err := src.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	for at := int64(0); at < size; {
		data, err := src.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // a hole to the end
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
	return dst.Truncate(size)
}

func copyRange(dst, src *os.File, from, to int64) error {
	if _, err := src.Seek(from, io.SeekStart); err != nil {
		return err
	}
	if _, err := dst.Seek(from, io.SeekStart); err != nil {
		return err
	}
	_, err := io.CopyN(dst, src, to-from) // copy_file_range where it works
	return err
}
