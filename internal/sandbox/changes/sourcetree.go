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
)

// SourceTree is the writable side of a source. Every path is resolved beneath
// its handle, in the state the directories have at that moment: no symbolic
// link is followed and no mount is entered, so nobody who plants one there
// can lead a change elsewhere (openat2(2)).
type SourceTree struct {
	Root  *os.File
	Owner record.ID // in the names of temporary files
	// plain does without O_TMPFILE and the flags of renameat2, as on a file
	// system that lacks them.
	plain bool
}

// IsWayGone reports whether err says that a directory on the way to an entry is not
// there any more, or is something else by now.
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
}

// At calls do with the entry of p, whose directory is open meanwhile, and with
// no rights but the user's.
func (t *SourceTree) At(p vpath.Path, do func(Entry) error) error {
	return record.AsUser(func() error { return t.openAt(p, do) })
}

func (t *SourceTree) openAt(p vpath.Path, do func(Entry) error) error {
	dir, err := t.OpenDir(p.Dir(), unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	name := p.Base()
	if p.IsRoot() {
		name = "." // which can only get another mode
	}
	return do(Entry{tree: t, Dir: dir, Name: name, temp: t.tempName(p)})
}

// tempName returns the name beside p under which a change passes: always the
// same, so that what a crash left is found again, and for nobody to guess who
// cannot read the state directory.
func (t *SourceTree) tempName(p vpath.Path) string {
	sum := sha256.Sum256([]byte(string(t.Owner) + "\x00" + string(p)))
	return ".agentfense-" + hex.EncodeToString(sum[:12])
}

// Sync makes the names in the directory p durable.
func (t *SourceTree) Sync(p vpath.Path) error {
	return record.AsUser(func() error {
		fd, err := t.OpenDir(p, unix.O_RDONLY)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Fsync(fd)
	})
}

// Stat describes the entry; nil if there is none.
func (e Entry) Stat() (*unix.Stat_t, error) { return statEntry(e.Dir, e.Name) }

func statEntry(dir int, name string) (*unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return &st, err
}

// IsVersion reports whether b is the file a, unchanged. ctime is left out
// because the renames of a replacement move it.
func IsVersion(a, b *unix.Stat_t) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Dev == b.Dev && a.Ino == b.Ino && a.Mode == b.Mode && a.Size == b.Size && a.Mtim == b.Mtim
}

// ErrMoved says that the source's entry is not the one that was checked.
var ErrMoved = errors.New("changed while it was being applied")

// put lets the entry become what makeAt makes under a name, in one step.
// before is what stands there and has been checked, nil for nothing; anything
// else that is found in its place is put back. makeAt must not replace.
// Errors: ErrMoved.
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

// swap exchanges the entry with what stands under the temporary name and
// removes what was there before.
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
		return e.removeTemp()
	}
	if err := e.rename(e.temp, e.Name, unix.RENAME_EXCHANGE); err != nil {
		return fmt.Errorf("%w; what stood there is now %s: %w", ErrMoved, e.temp, err)
	}
	return errors.Join(ErrMoved, e.removeTemp())
}

// swapPlain is swap where names cannot be exchanged: between the check and
// the rename is a moment.
func (e Entry) swapPlain(before *unix.Stat_t) error {
	now, err := e.Stat()
	if err == nil && !IsVersion(before, now) {
		err = ErrMoved
	}
	if err == nil {
		err = e.rename(e.temp, e.Name, 0)
	}
	if err != nil {
		return errors.Join(err, e.removeTemp())
	}
	return nil
}

// Remove deletes the entry, which has been checked to be before and is no
// directory. Errors: ErrMoved.
func (e Entry) Remove(before *unix.Stat_t) error {
	err := e.rename(e.Name, e.temp, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) {
		now, err := e.Stat()
		if err == nil && !IsVersion(before, now) {
			err = ErrMoved
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
		return e.removeTemp()
	}
	if err := e.rename(e.temp, e.Name, unix.RENAME_NOREPLACE); err != nil {
		return fmt.Errorf("%w; what stood there is now %s: %w", ErrMoved, e.temp, err)
	}
	return ErrMoved
}

// RemoveDir deletes the entry, a directory, if it is empty. Errors: ErrMoved
// if it is not, or is none.
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

// removeTemp removes what stands under the temporary name: what was replaced,
// or an empty directory that found no place.
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

// recover clears the temporary name after an apply that was interrupted.
// isBefore tells whether a file is what the delta was recorded to replace. What
// is removed cannot be anybody's work: the new version that did not get its
// place, or the old one that lost it. Errors: ErrMoved, naming the file, for
// anything else.
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
	return fmt.Errorf("%w; an interrupted apply left what stood there as %s", ErrMoved, e.temp)
}
