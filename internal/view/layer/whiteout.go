package layer

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// makeWhiteout hides name in the delta directory dir; a whiteout that is there
// already will do. The caller holds ns exclusively.
//
// Whiteouts are names of one empty file as long as that can be linked: a link
// is a third of what making a file costs, and takes no inode.
func (s *Stack) makeWhiteout(dir int, name string) error {
	stored, hashed := nameenc.Whiteout(name)
	var err error
	switch {
	case hashed:
		err = unix.Symlinkat(nameenc.LinkTarget(name), dir, stored)
	case s.blank == "":
		err = s.makeBlank(dir, stored)
	default:
		err = unix.Linkat(s.work, s.blank, dir, stored, 0)
		if err != nil && err != unix.EEXIST {
			err = s.makeBlank(dir, stored) // it has as many names as it can
		}
	}
	if err == unix.EEXIST {
		return nil
	}
	return err
}

// makeBlank makes a whiteout of its own, which further ones may then be names
// of. Where files cannot have several names there is no such one.
func (s *Stack) makeBlank(dir int, stored string) error {
	err := unix.Mknodat(dir, stored, unix.S_IFREG|0o600, 0)
	if err != nil {
		return err
	}
	name := s.temp()
	s.blank = ""
	if unix.Linkat(dir, stored, s.work, name, 0) == nil {
		s.blank = name
	}
	return nil
}

func dropWhiteout(dir int, name string) error {
	stored, _ := nameenc.Whiteout(name)
	return safefs.Unlink(dir, stored)
}

// hasWhiteout reports whether the delta directory fd hides name below it.
func hasWhiteout(fd int, name string) (bool, error) {
	stored, _ := nameenc.Whiteout(name)
	return exists(fd, stored)
}
