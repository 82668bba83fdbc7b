package layer

import (
	"crypto/sha256"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/journal"
)

// Base is what a path was in the source when the sandbox first changed it.
type Base = journal.Base

// ContentMax is journal.ContentMax.
const ContentMax = journal.ContentMax

func baseOf(st *stat) Base {
	return Base{
		Dev: st.dev, Ino: st.ino, Size: st.size, Mode: st.mode, Nlink: st.nlink,
		Mtime: st.mtime, Ctime: st.ctime,
	}
}

// Bases returns what is recorded for each path. A path without a record was
// absent, or its record was lost. Each call reads the whole log. Errors:
// Internal.
func (s *Stack) Bases() (map[vpath.Path]Base, error) {
	bases, err := s.journal.Bases()
	return bases, wrap("read bases of", vpath.Root, err)
}

// BaseContent opens the content that was kept for b; the caller closes it.
// Errors: NotFound if none was kept or it was damaged.
func (s *Stack) BaseContent(b *Base) (*os.File, error) {
	f, err := s.journal.Content(b)
	if err != nil {
		return nil, errdefs.New(errdefs.NotFound, "open recorded content: %w", err)
	}
	return f, nil
}

// SourceMatches reports whether the source's entry at p is still the one that b recorded:
// it has the same identity or, for a file with a recorded hash, the same mode and content.
// For a directory, type and mode count, and its entries do not. A nil b matches nothing.
// With Options.Elsewhere, a file without a recorded hash matches if it looks like a copy:
// size, mode and time are equal. Errors: Denied, Internal.
func (s *Stack) SourceMatches(p vpath.Path, b *Base) (bool, error) {
	if b == nil {
		return false, nil
	}
	ok, err := s.sourceMatches(p, b)
	return ok, wrap("compare source", p, err)
}

// SourceMatchesIn is SourceMatches for a caller that has the source's directory of p open as dir.
func (s *Stack) SourceMatchesIn(dir int, p vpath.Path, b *Base) (bool, error) {
	if b == nil || p.IsRoot() || p.IsOwn() {
		return s.SourceMatches(p, b)
	}
	ok, err := s.matchesAt(dir, p.Base(), b)
	return ok, wrap("compare source", p, err)
}

func (s *Stack) sourceMatches(p vpath.Path, b *Base) (bool, error) {
	dir, name, err := s.openSourceDir(p)
	if isAbsent(err) {
		return b.Absent, nil
	}
	if err != nil {
		return false, err
	}
	defer unix.Close(dir)
	return s.matchesAt(dir, name, b)
}

func (s *Stack) matchesAt(dir int, name string, b *Base) (bool, error) {
	st, err := statAt(dir, name)
	if err == unix.ENOENT {
		return b.Absent, nil
	}
	if err != nil || b.Absent {
		return false, err
	}
	now := baseOf(&st)
	switch {
	case st.isDir():
		return st.mode == b.Mode, nil
	case b.SameIdentity(&now):
		return true, nil
	case b.SHA256 == nil && s.o.Elsewhere:
		return looksLike(b, &now), nil
	case b.SHA256 == nil || st.size != b.Size || st.mode != b.Mode:
		return false, nil
	}
	sum, err := s.hashAt(dir, name, &st)
	return err == nil && string(sum) == string(b.SHA256), err
}

// hashAt returns the hash of a regular file or of a link's target.
func (s *Stack) hashAt(dir int, name string, st *stat) ([]byte, error) {
	if st.kind() == unix.S_IFLNK {
		target, err := readlinkAt(dir, name)
		sum := sha256.Sum256([]byte(target))
		return sum[:], err
	}
	fd, _, err := s.openEntry(entry{part: part{origin: Source, fd: dir}, stored: name, st: *st}, false)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return journal.HashFile(fd)
}

// looksLike reports whether b may describe a copy of the original o: type, permissions,
// size and, to the nanosecond, modification time are equal.
func looksLike(b, o *Base) bool {
	return b.Absent == o.Absent && b.Mode == o.Mode && b.Size == o.Size && b.Mtime == o.Mtime
}
