package changes

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Image is a name in a private directory that holds, or takes, an entry of the source that is no
// directory: the state before a change.
type Image struct {
	Dir  int // an open directory
	Name string
	// Copied says that a copy is there already, so that the entry itself can be removed.
	Copied bool
}

// To returns the entry with the image that takes what is replaced or removed. With nil it is
// removed.
func (e Entry) To(i *Image) Entry {
	e.image = i
	return e
}

// takeTemp moves what an exchange or a removal took out of the source to the image.
func (e Entry) takeTemp() error {
	if e.image == nil || e.image.Copied {
		return e.removeTemp()
	}
	err := unix.Renameat(e.Dir, e.temp, e.image.Dir, e.image.Name)
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EPERM) {
		if err = e.copyAside(e.temp); err == nil {
			err = e.removeTemp()
		}
	}
	failpoint.At("journal: taken")
	return err
}

// copyAside copies the entry name of the directory to the image, durably, unless it is there.
func (e Entry) copyAside(name string) error {
	if e.image == nil || e.image.Copied {
		return nil
	}
	if err := copyEntry(e.Dir, name, e.image.Dir, e.image.Name); err != nil {
		return err
	}
	fd, err := safefs.Open(e.image.Dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Syncfs(fd) // rare: not in the same mount as the rest of the source
}

// CopyTo copies the entry to an image. It does not make the copy durable. Errors: ErrMoved if the
// entry changes meanwhile.
func (e Entry) CopyTo(i *Image) error {
	before, err := e.Stat()
	if err == nil && before == nil {
		err = ErrMoved
	}
	if err != nil {
		return err
	}
	if err := copyEntry(e.Dir, e.Name, i.Dir, i.Name); err != nil {
		return movedIfAbsent(err)
	}
	after, err := e.Stat()
	if err == nil && !IsVersion(before, after) {
		err = ErrMoved
	}
	if err != nil {
		return errors.Join(err, unix.Unlinkat(i.Dir, i.Name, 0))
	}
	return nil
}

// CanMoveTo reports whether an entry of the directory can be moved to dir, which is possible in
// the same mount only.
func (e Entry) CanMoveTo(dir int) bool {
	const absent = ".agentfense-is-there-no-such-name"
	return errors.Is(unix.Renameat(e.Dir, absent, dir, absent), unix.ENOENT)
}

// PutImage places the content of an image, with its attributes, in one step. before is the entry
// that was checked, or nil. Errors: ErrMoved.
func (e Entry) PutImage(i Image, before *unix.Stat_t) error {
	err := e.put(before, func(dir int, name string) error {
		return unix.Linkat(i.Dir, i.Name, dir, name, 0)
	})
	switch {
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.EPERM), errors.Is(err, unix.EMLINK), errors.Is(err, unix.EOPNOTSUPP):
		return e.putCopy(i, before)
	case errors.Is(err, unix.EEXIST):
		return ErrMoved
	}
	return err
}

// putCopy is PutImage on another file system.
func (e Entry) putCopy(i Image, before *unix.Stat_t) error {
	st, err := statEntry(i.Dir, i.Name)
	switch {
	case err != nil:
		return err
	case st == nil:
		return unix.ENOENT
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		target, err := readLink(i.Dir, i.Name)
		if err != nil {
			return err
		}
		return e.MakeLink(target, before)
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return e.MakeFIFO(Look{Mode: st.Mode & record.PermBits, Mtime: st.Mtim, Before: before})
	}
	s, err := e.openStaged()
	if err != nil {
		return err
	}
	defer s.Close()
	if err = fillFrom(s.File, i.Dir, i.Name, st); err == nil {
		err = s.File.Sync()
	}
	if err != nil {
		return errors.Join(err, e.RemoveIfNamed(s))
	}
	return e.Place(s, before)
}

// copyEntry copies an entry that is no directory, with its attributes, to a new name.
func copyEntry(fromDir int, from string, toDir int, to string) error {
	st, err := statEntry(fromDir, from)
	switch {
	case err != nil:
		return err
	case st == nil:
		return unix.ENOENT
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		target, err := readLink(fromDir, from)
		if err != nil {
			return err
		}
		return unix.Symlinkat(target, toDir, to)
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return unix.Mknodat(toDir, to, unix.S_IFIFO|st.Mode&record.PermBits, 0)
	}
	fd, err := safefs.Open(toDir, to, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), to)
	defer f.Close()
	if err := fillFrom(f, fromDir, from, st); err != nil {
		return errors.Join(err, unix.Unlinkat(toDir, to, 0))
	}
	return nil
}

// fillFrom fills an empty file with the content and the attributes of the file name of dir, which
// st describes.
func fillFrom(f *os.File, dir int, name string, st *unix.Stat_t) error {
	fd, err := safefs.Open(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	src := os.NewFile(uintptr(fd), name)
	defer src.Close()
	if err := copyContent(f, src); err != nil {
		return err
	}
	if err := copyAllAttributes(f, src); err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		err = unix.Fchown(int(f.Fd()), int(st.Uid), int(st.Gid))
	} else {
		err = keepGroup(int(f.Fd()), st)
	}
	if err == nil {
		err = unix.Fchmod(int(f.Fd()), st.Mode&0o7777)
	}
	if err != nil {
		return err
	}
	return setMtime(int(f.Fd()), st.Mtim)
}

// copyAllAttributes copies the user's extended attributes and the access control list.
func copyAllAttributes(to, from *os.File) error {
	path := safefs.ProcPath(int(from.Fd()))
	names, err := listAttributes(path)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !isKeptAttribute(name) {
			continue
		}
		value, err := getAttribute(path, name)
		if err == nil {
			err = unix.Fsetxattr(int(to.Fd()), name, value, 0)
		}
		// The other file system may have no attributes: the content counts.
		if err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	return nil
}

func readLink(dir int, name string) (string, error) {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, target)
	return string(target[:max(n, 0)]), err
}

// Target returns the target of the entry, a symbolic link.
func (e Entry) Target() (string, error) { return readLink(e.Dir, e.Name) }

// OpenFile opens the entry, a regular file, to read it.
func (e Entry) OpenFile() (*os.File, error) {
	fd, err := safefs.Open(e.Dir, e.Name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), e.Name), nil
}

// StatTemp describes the temporary file beside the entry. It returns nil if there is none.
func (e Entry) StatTemp() (*unix.Stat_t, error) { return statEntry(e.Dir, e.temp) }

// RemoveTemp removes the temporary file beside the entry.
func (e Entry) RemoveTemp() error { return e.removeTemp() }

// TakeTemp moves the temporary file, which a killed process took out of the source, to the image.
func (e Entry) TakeTemp() error { return e.takeTemp() }

// PutBack puts the temporary file, which a killed process took out of the source, back in place
// of the present entry, which then goes.
func (e Entry) PutBack(now *unix.Stat_t) error {
	if now == nil {
		return movedIfAbsent(e.rename(e.temp, e.Name, unix.RENAME_NOREPLACE))
	}
	if record.IsDir(now.Mode) {
		if err := e.RemoveDir(); err != nil {
			return err
		}
		return e.PutBack(nil)
	}
	if err := e.rename(e.temp, e.Name, unix.RENAME_EXCHANGE); err != nil {
		return err
	}
	out, err := statEntry(e.Dir, e.temp)
	if err == nil && !IsVersion(now, out) {
		return errors.Join(ErrMoved, e.rename(e.temp, e.Name, unix.RENAME_EXCHANGE))
	}
	return errors.Join(err, e.removeTemp())
}

// Chown gives the entry an owner, if this process is root.
func (e Entry) Chown(uid, gid uint32) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return unix.Fchownat(e.Dir, e.Name, int(uid), int(gid), unix.AT_SYMLINK_NOFOLLOW)
}
