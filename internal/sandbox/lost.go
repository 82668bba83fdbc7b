package sandbox

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/audit"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/hostfile"
	"github.com/agentfense/agentfense/internal/layer"
)

// A source that was deleted, or made again, is lost to its sandbox. The delta is
// not: it can be looked at over an empty directory in the source's place, brought
// into another directory (ApplyOptions.To), thrown away, or put on top of the
// directory that is at the source's path now (Rebase).

// SourceLost says why the sandbox cannot reach the directory it was made of, nil
// if it can. replaced says that another directory is at its path now.
func (s *Sandbox) SourceLost() (replaced bool, why error) {
	f, err := s.record.Source.Open()
	if err == nil {
		f.Close()
		return false, nil
	}
	if !isLost(err) {
		return false, nil
	}
	return fault.Is(err, fault.Precondition), err
}

func isLost(err error) bool {
	return fault.Is(err, fault.NotFound) || fault.Is(err, fault.Precondition) || fault.Is(err, fault.Invalid)
}

// sourceToRead opens the source, or an empty directory if it is lost.
func (s *Sandbox) sourceToRead() (source *os.File, lost bool, err error) {
	source, err = s.record.Source.Open()
	if err == nil || !isLost(err) {
		return source, false, err
	}
	source, err = s.home.emptyDir()
	return source, true, err
}

// emptyDir opens a directory that has no name, so that nobody can put anything
// into it.
func (h *Home) emptyDir() (*os.File, error) {
	var errs []error
	for _, parent := range []string{os.TempDir(), h.dir} { // one may be full
		f, err := emptyDirIn(parent)
		if err == nil {
			return f, nil
		}
		errs = append(errs, err)
	}
	return nil, hostError("stand-in for the source", errors.Join(errs...))
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

// openToRead opens the sandbox to look at its changes, without its source if that
// is lost.
func (s *Sandbox) openToRead() (*work, error) {
	source, lost, err := s.sourceToRead()
	if err != nil {
		return nil, err
	}
	return s.openOver(source, s.record.Source, layer.Options{ReadOnly: true, Elsewhere: lost})
}

// openToDiscard opens the sandbox to throw changes away. Without its source only
// all of them can be: what a single one uncovers is not known.
func (s *Sandbox) openToDiscard(o DiscardOptions) (*work, error) {
	_, why := s.SourceLost()
	switch {
	case why == nil:
		return s.openTo(PurposeDiscard, o.Drop, o.DryRun)
	case o.Drop != nil:
		return nil, fault.New(fault.Precondition, "discard %s: %w: stop the sandbox first", s.Name(), why)
	case len(o.Paths) > 0:
		return nil, fault.New(fault.Precondition, "discard %s: %w: without its source only everything can be discarded, not a path", s.Name(), why)
	}
	return s.openBy(PurposeDiscard, nil, o.DryRun, func(readOnly bool) (*work, error) {
		source, err := s.home.emptyDir()
		if err != nil {
			return nil, err
		}
		return s.openOver(source, s.record.Source, layer.Options{ReadOnly: readOnly, Elsewhere: true})
	})
}

// Rebase takes the directory that is at the source's path now for the source, and
// says so in the audit log. What the delta's entries were made of stays recorded:
// an apply finds a conflict wherever the new directory has another content.
// Errors: Precondition while something runs in the sandbox, and if the path leads
// through a symbolic link now; those of ResolveSource.
func (s *Sandbox) Rebase() error {
	defer s.home.MakeRoom()()
	now, err := s.home.ResolveSource(string(s.record.Source.Path))
	switch {
	case err != nil:
		return err
	case now.Path != s.record.Source.Path:
		return fault.New(fault.Precondition, "source %s: leads through a symbolic link now, to %s", s.record.Source.Path, now.Path)
	case s.record.Source.isSame(now):
		return nil
	}
	lock, err := s.TryLock(PurposeRebase)
	if err != nil {
		return err
	}
	defer lock.Release()
	// What a killed apply left is in the directory that is gone.
	if err := os.Truncate((&work{sandbox: s, turnFile: turnFile}).turnPath(), 0); hostfile.IgnoreAbsent(err) != nil {
		return hostError("sandbox "+s.Name(), err)
	}
	was := s.record.Source.Ino
	if err := s.log(audit.SandboxRebased{Source: audit.Text(now.Path), WasInode: was, Inode: now.Ino}); err != nil {
		return err
	}
	return s.update(func(r *Record) error {
		r.Source = now
		return nil
	})
}
