package record

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// A sandbox loses its source if the directory is deleted or made again. It keeps its delta.
// A user can look at the delta over an empty directory, apply it to another directory
// (apply.Options.To), discard it, or rebase it onto the directory that is now at the
// source's path (changes.Rebase).

// SourceLost returns the reason why the source is lost, or nil if it is not. replaced
// reports whether another directory is now at its path.
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

// EmptyDir opens an empty directory that has no name, so that no process can add an entry.
func (h *Home) EmptyDir() (*os.File, error) {
	var errs []error
	for _, parent := range []string{os.TempDir(), h.dir} { // one of the disks may be full
		f, err := emptyDirIn(parent)
		if err == nil {
			return f, nil
		}
		errs = append(errs, err)
	}
	return nil, HostError("empty directory for the lost source", errors.Join(errs...))
}

func emptyDirIn(parent string) (*os.File, error) {
	path, err := os.MkdirTemp(parent, ".agentfense-empty-")
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	removed := unix.Rmdir(path) // fails if another process has added an entry
	if err != nil {
		return nil, errors.Join(err, removed)
	}
	if removed != nil {
		unix.Close(fd)
		return nil, removed
	}
	return os.NewFile(uintptr(fd), "empty"), nil
}
