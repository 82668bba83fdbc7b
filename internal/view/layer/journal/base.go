package journal

import (
	"golang.org/x/sys/unix"
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

	content string // name in base/, inline, or "" if no content was kept
	text    []byte // the content itself, if it goes into the log before the record
	at      Span   // of a content that was found in the log
}

// ContentMax is the largest size, in bytes, at which the content of a file that is
// about to change is hashed and kept. A larger content is kept only if the file
// system can share its blocks.
const ContentMax = 1 << 20

// SameIdentity reports whether a and b describe the same file unchanged. The
// number of names does not count: it moves without the content.
func (b *Base) SameIdentity(o *Base) bool {
	return b.Absent == o.Absent && b.Dev == o.Dev && b.Ino == o.Ino && b.Size == o.Size &&
		b.Mode == o.Mode && b.Mtime == o.Mtime && b.Ctime == o.Ctime
}
