package layer

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/vpath"
)

// Base is what a path was in the source when the sandbox first changed it.
type Base struct {
	Absent bool // there was nothing; all else is zero

	Dev, Ino     uint64
	Size         int64
	Mode         uint32 // type and permission bits
	Nlink        uint32
	Mtime, Ctime unix.Timespec

	// SHA256 is of the content, or of a symbolic link's target; nil where it
	// was not taken.
	SHA256 []byte

	content string // name in base/, inLog, or "" if the content was not kept
	text    []byte // the content itself, if it goes into the log with the record
	at      span   // of a content that was found in the log
}

// ContentMax is the size up to which the content of a file that is about to
// change is hashed and kept; above it is kept where the file system can share
// the blocks.
const ContentMax = 1 << 20

func baseOf(st *stat) Base {
	return Base{
		Dev: st.dev, Ino: st.ino, Size: st.size, Mode: st.mode, Nlink: st.nlink,
		Mtime: st.mtime, Ctime: st.ctime,
	}
}

// sameIdentity reports whether a and b describe the same file unchanged. The
// number of names does not count: it moves without the content.
func (b *Base) sameIdentity(o *Base) bool {
	return b.Absent == o.Absent && b.Dev == o.Dev && b.Ino == o.Ino && b.Size == o.Size &&
		b.Mode == o.Mode && b.Mtime == o.Mtime && b.Ctime == o.Ctime
}

// looksLike compares what a copy has of its original: type and permissions, size
// and, to the nanosecond, the time of its last change.
func (b *Base) looksLike(o *Base) bool {
	return b.Absent == o.Absent && b.Mode == o.Mode && b.Size == o.Size && b.Mtime == o.Mtime
}

// Bases returns what is recorded for each path. A path without a record was
// absent, or its record was lost. Each call reads the whole log. Errors:
// Internal.
func (s *Stack) Bases() (map[vpath.Path]Base, error) {
	bases, err := s.journal.bases()
	return bases, wrap("read bases of", vpath.Root, err)
}

// BaseContent opens the content that was kept for b; the caller closes it.
// Errors: NotFound if none was kept or it was damaged.
func (s *Stack) BaseContent(b *Base) (*os.File, error) {
	f, err := s.baseContent(b)
	if err != nil {
		return nil, fault.New(fault.NotFound, "open recorded content: %w", err)
	}
	return f, nil
}

func (s *Stack) baseContent(b *Base) (*os.File, error) {
	if b == nil || b.content == "" {
		return nil, unix.ENOENT
	}
	if b.content == inLog {
		return s.loggedContent(b)
	}
	dir, err := openDir(s.home, "base")
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	fd, err := openat2(dir, b.content, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if b.SHA256 != nil {
		sum, err := hashFd(fd)
		if err == nil && string(sum) != string(b.SHA256) {
			err = unix.EIO
		}
		if err != nil {
			unix.Close(fd)
			return nil, err
		}
	}
	return asOS(fd, "recorded content"), nil
}

// SourceMatches reports whether the source at p is still what b recorded: the
// same identity, or for a file that was hashed the same mode and content; for
// a directory the same type and mode, whatever it holds. A nil b matches
// nothing. With Options.Elsewhere a file that was not hashed is what was recorded
// if it looks like a copy of that: size, mode and time are the same. Errors:
// Denied, Internal.
func (s *Stack) SourceMatches(p vpath.Path, b *Base) (bool, error) {
	if b == nil {
		return false, nil
	}
	ok, err := s.sourceMatches(p, b)
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
	case b.sameIdentity(&now):
		return true, nil
	case b.SHA256 == nil && s.o.Elsewhere:
		return b.looksLike(&now), nil
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
	return hashFd(fd)
}

// hashFd hashes what fd is open on, of at most ContentMax bytes.
func hashFd(fd int) ([]byte, error) {
	content, err := readContent(fd, ContentMax)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	return sum[:], nil
}

// readContent reads the file of the given size; one that is longer by now is
// cut, one that is shorter is returned as it is.
func readContent(fd int, size int64) ([]byte, error) {
	return readRange(fd, span{0, size})
}

// readRange reads a range of a file, as much of it as is there.
func readRange(fd int, at span) ([]byte, error) {
	buf := make([]byte, at.len)
	n := 0
	for n < len(buf) {
		m, err := unix.Pread(fd, buf[n:], at.off+int64(n))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if m == 0 {
			break
		}
		n += m
	}
	return buf[:n], nil
}

// isContentName reports whether a record can say that of where its content is.
func isContentName(name string) bool {
	return name == inLog || len(name) == hex.EncodedLen(sha256.Size) || strings.HasPrefix(name, "shared-")
}
