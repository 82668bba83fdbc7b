package changes

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/rights"
)

// SourceTree gives write access to a source. It resolves every path beneath its handle,
// follows no symbolic link and enters no mount (openat2(2)). So a link or a mount that
// another program makes there cannot redirect a change.
type SourceTree struct {
	Root  *os.File
	Owner record.ID // in the names of temporary files
	// plain avoids O_TMPFILE and the flags of renameat2, as on a file system without them.
	plain bool
}

// IsWayGone reports whether err means that a parent directory of an entry no longer exists,
// or is no longer a directory.
func IsWayGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// OpenDir opens the directory at p with flags.
func (t *SourceTree) OpenDir(p vpath.Path, flags int) (int, error) {
	return safefs.OpenDir(int(t.Root.Fd()), p.Rel(), flags)
}

// Entry is a name in an open directory of the source, and the temporary name
// beside it.
type Entry struct {
	tree       *SourceTree
	Dir        int
	Name, temp string
	image      *Image // takes what is replaced or removed, see To
}

// At calls do with the entry of p, with its directory open, and with the rights of the user
// only.
func (t *SourceTree) At(p vpath.Path, do func(Entry) error) error {
	return rights.AsUser(func() error { return t.openAt(p, do) })
}

func (t *SourceTree) openAt(p vpath.Path, do func(Entry) error) error {
	dir, err := t.OpenDir(p.Dir(), unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	name := p.Base()
	if p.IsRoot() {
		name = "." // only its mode can change
	}
	return do(Entry{tree: t, Dir: dir, Name: name, temp: t.tempName(p)})
}

// tempName returns the temporary name beside p. It is always the same for p, so that the
// next command finds a leftover. Only users who can read the state directory can guess it.
func (t *SourceTree) tempName(p vpath.Path) string {
	sum := sha256.Sum256([]byte(string(t.Owner) + "\x00" + string(p)))
	return ".agentfense-" + hex.EncodeToString(sum[:12])
}

// Sync makes the names in the directory p durable.
func (t *SourceTree) Sync(p vpath.Path) error {
	return rights.AsUser(func() error {
		fd, err := t.OpenDir(p, unix.O_RDONLY)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Fsync(fd)
	})
}

// Stat describes the entry. It returns nil if there is none.
func (e Entry) Stat() (*unix.Stat_t, error) { return statEntry(e.Dir, e.Name) }

func statEntry(dir int, name string) (*unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return &st, err
}

// IsVersion reports whether b is the unchanged file a. It ignores the ctime, which the
// renames of a replacement change.
func IsVersion(a, b *unix.Stat_t) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Dev == b.Dev && a.Ino == b.Ino && a.Mode == b.Mode && a.Size == b.Size && a.Mtim == b.Mtim
}

// ErrMoved means that the source's entry is not the one that was checked.
var ErrMoved = errors.New("changed while it was being applied")

// ErrStopped means that the sandbox has stopped, so that its supervisor can drop nothing.
var ErrStopped = errors.New("the sandbox has stopped meanwhile")

// put replaces the entry, in one step, by the entry that makeAt makes under a temporary
// name. before is the entry that was checked, or nil. If put finds another entry, it puts
// that back. makeAt must not replace an existing name. Errors: ErrMoved.
func (e Entry) put(before *unix.Stat_t, makeAt func(dir int, name string) error) error {
	if before == nil {
		err := makeAt(e.Dir, e.Name)
		if errors.Is(err, unix.EEXIST) {
			return ErrMoved
		}
		return err
	}
	if err := makeAt(e.Dir, e.temp); err != nil {
		return err
	}
	return e.swap(before)
}

// swap exchanges the entry with its temporary file and removes the old entry.
func (e Entry) swap(before *unix.Stat_t) error {
	err := e.rename(e.temp, e.Name, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) {
		return e.swapPlain(before)
	}
	if err != nil {
		return errors.Join(movedIfAbsent(err), e.removeTemp())
	}
	failpoint.At("sync: swapped")
	out, err := statEntry(e.Dir, e.temp)
	if err == nil && IsVersion(before, out) {
		return e.takeTemp()
	}
	if err := e.rename(e.temp, e.Name, unix.RENAME_EXCHANGE); err != nil {
		return fmt.Errorf("%w; the entry that was found there is now %s: %w", ErrMoved, e.temp, err)
	}
	return errors.Join(ErrMoved, e.removeTemp())
}

// swapPlain is swap on a file system that cannot exchange names. There is a short time
// between its check and the rename.
func (e Entry) swapPlain(before *unix.Stat_t) error {
	now, err := e.Stat()
	if err == nil && !IsVersion(before, now) {
		err = ErrMoved
	}
	if err == nil {
		err = e.copyAside(e.Name)
	}
	if err == nil {
		err = e.rename(e.temp, e.Name, 0)
	}
	if err != nil {
		return errors.Join(err, e.removeTemp())
	}
	return nil
}

// Remove deletes the entry, a non-directory that was checked to be before. Errors:
// ErrMoved.
func (e Entry) Remove(before *unix.Stat_t) error {
	err := e.rename(e.Name, e.temp, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) {
		now, err := e.Stat()
		if err == nil && !IsVersion(before, now) {
			err = ErrMoved
		}
		if err == nil {
			err = e.copyAside(e.Name)
		}
		if err != nil {
			return err
		}
		return unix.Unlinkat(e.Dir, e.Name, 0)
	}
	if err != nil {
		return movedIfAbsent(err)
	}
	failpoint.At("sync: moved away")
	out, err := statEntry(e.Dir, e.temp)
	if err == nil && IsVersion(before, out) {
		return e.takeTemp()
	}
	if err := e.rename(e.temp, e.Name, unix.RENAME_NOREPLACE); err != nil {
		return fmt.Errorf("%w; the entry that was found there is now %s: %w", ErrMoved, e.temp, err)
	}
	return ErrMoved
}

// RemoveDir deletes the entry, an empty directory. Errors: ErrMoved if it is not empty, or
// not a directory.
func (e Entry) RemoveDir() error {
	err := unix.Unlinkat(e.Dir, e.Name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTDIR) {
		return ErrMoved
	}
	return err
}

func (e Entry) rename(from, to string, flags uint) error {
	if e.tree.plain && flags != 0 {
		return unix.EINVAL
	}
	if flags == 0 {
		return unix.Renameat(e.Dir, from, e.Dir, to)
	}
	return unix.Renameat2(e.Dir, from, e.Dir, to, flags)
}

// removeTemp removes the temporary entry: the replaced one, or an empty directory that
// could not be placed.
func (e Entry) removeTemp() error {
	err := unix.Unlinkat(e.Dir, e.temp, 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(e.Dir, e.temp, unix.AT_REMOVEDIR)
	}
	return safefs.IgnoreAbsent(err)
}

func movedIfAbsent(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EEXIST) {
		return ErrMoved
	}
	return err
}

// recover removes the temporary entry of an interrupted apply. isBefore reports whether a
// file is the one that the delta's entry replaces. recover only removes the new version
// that was not placed, or the replaced old one, which nobody needs. Errors: ErrMoved,
// naming the file, for any other entry.
func (e Entry) recover(isBefore func(name string, st *unix.Stat_t) bool) error {
	left, err := statEntry(e.Dir, e.temp)
	if left == nil || err != nil {
		return err
	}
	now, err := e.Stat()
	if err != nil {
		return err
	}
	if isBefore(e.Name, now) || isBefore(e.temp, left) {
		return e.removeTemp()
	}
	if now == nil {
		if err := e.rename(e.temp, e.Name, unix.RENAME_NOREPLACE); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%w; an interrupted apply left the entry that was found there as %s", ErrMoved, e.temp)
}
