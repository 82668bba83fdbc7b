package record

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// A source that was deleted, or made again, is lost to its sandbox. The delta is
// not: it can be looked at over an empty directory in the source's place, brought
// into another directory (apply.Options.To), thrown away, or put on top of the
// directory that is at the source's path now (apply.Rebase).

// SourceLost says why the sandbox cannot reach the directory it was made of, nil
// if it can. replaced says that another directory is at its path now.
func (s *Sandbox) SourceLost() (replaced bool, why error) {
	f, err := s.Stored.Source.Open()
	if err == nil {
		f.Close()
		return false, nil
	}
	if !isLost(err) {
		return false, nil
	}
	return errdefs.Is(err, errdefs.Precondition), err
}

func isLost(err error) bool {
	return errdefs.Is(err, errdefs.NotFound) || errdefs.Is(err, errdefs.Precondition) || errdefs.Is(err, errdefs.Invalid)
}

// SourceToRead opens the source, or an empty directory if it is lost.
func (s *Sandbox) SourceToRead() (source *os.File, lost bool, err error) {
	source, err = s.Stored.Source.Open()
	if err == nil || !isLost(err) {
		return source, false, err
	}
	source, err = s.Home.EmptyDir()
	return source, true, err
}

// EmptyDir opens a directory that has no name, so that nobody can put anything
// into it.
func (h *Home) EmptyDir() (*os.File, error) {
	var errs []error
	for _, parent := range []string{os.TempDir(), h.dir} { // one may be full
		f, err := emptyDirIn(parent)
		if err == nil {
			return f, nil
		}
		errs = append(errs, err)
	}
	return nil, HostError("stand-in for the source", errors.Join(errs...))
}

func emptyDirIn(parent string) (*os.File, error) {
	path, err := os.MkdirTemp(parent, ".agentfense-empty-")
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	removed := unix.Rmdir(path) // which fails if somebody has put something into it
	if err != nil {
		return nil, errors.Join(err, removed)
	}
	if removed != nil {
		unix.Close(fd)
		return nil, removed
	}
	return os.NewFile(uintptr(fd), "empty"), nil
}
