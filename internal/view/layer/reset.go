package layer

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Reset drops every change, so that the stack shows the source again. Errors: Internal.
func (s *Stack) Reset() error {
	if err := s.writable(); err != nil {
		return wrap("drop", vpath.Root, err)
	}
	defer s.sweep()
	s.ns.Lock()
	defer s.ns.Unlock()
	s.writers.Lock()
	defer s.writers.Unlock()
	s.gen.Add(1)
	s.dirs.purge(vpath.Root)
	return wrap("drop", vpath.Root, s.reset())
}

func (s *Stack) reset() error {
	for _, name := range []string{"top", "frozen"} {
		if err := s.moveToGarbage(s.home, name); err != nil && err != unix.ENOENT {
			return err
		}
	}
	fresh, err := s.newTop(nil)
	if err == unix.ENOSPC || err == unix.EDQUOT {
		s.sweep() // the disk is full: free the space of the old delta first
		fresh, err = s.newTop(nil)
	}
	if err != nil {
		return err
	}
	for _, l := range s.layers[:s.bottom()] {
		unix.Close(l.root)
	}
	s.layers = []*layer{fresh, s.layers[s.bottom()]}
	s.rootTouched = false
	s.quota.settleDir(vpath.Root, fresh.root)
	clear(s.covered)
	return s.journal.Clear()
}
