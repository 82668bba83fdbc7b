package layer

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// OpenSourceDir opens an O_PATH handle on the directory p of the source. Look-ups in p
// that begin later use this directory, not one that was at p before.
// Errors: NotFound if the source has no directory there; Precondition (EXDEV)
// for a mount nested in the source.
func (s *Stack) OpenSourceDir(p vpath.Path) (*os.File, error) {
	fd, err := s.sourceDirAt(p)
	if err == unix.ENOTDIR || err == unix.ELOOP {
		err = unix.ENOENT
	}
	if err != nil {
		return nil, wrap("open source", p, err)
	}
	s.dirs.forget(p)
	return asOS(fd, p.String()), nil
}

// isPlain reports whether kind, the type bits of a mode, is a regular file, a directory or a
// symbolic link.
func isPlain(kind uint32) bool {
	return kind == unix.S_IFREG || kind == unix.S_IFDIR || kind == unix.S_IFLNK
}
