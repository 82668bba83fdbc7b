package layer

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// makeWhiteout hides name in the delta directory dir, if it has no whiteout yet. The caller
// holds ns exclusively.
//
// Whiteouts are hard links to one empty file where possible: a link costs a third of making
// a file, and takes no inode.
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
			err = s.makeBlank(dir, stored) // the file system allows no more links
		}
	}
	if err == unix.EEXIST {
		return nil
	}
	return err
}

// makeBlank makes a whiteout as a new file, to which makeWhiteout links further ones. On a
// file system without hard links each whiteout is a file.
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

// hasWhiteout reports whether the delta directory fd has a whiteout for name.
func hasWhiteout(fd int, name string) (bool, error) {
	stored, _ := nameenc.Whiteout(name)
	return exists(fd, stored)
}
