package layer

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
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
	s.links.forget()
	// First, because what is left after a crash must not come from a frozen layer.
	for _, name := range []string{belowName, lineageName} {
		if err := safefs.Unlink(s.home, name); err != nil {
			return err
		}
	}
	if err := s.moveToGarbage(s.home, "top"); err != nil && err != unix.ENOENT {
		return err
	}
	fresh, err := makeTop(s.home, -1)
	if err == unix.ENOSPC || err == unix.EDQUOT {
		s.sweep() // the disk is full: free the space of the old delta first
		fresh, err = makeTop(s.home, -1)
	}
	if err != nil {
		return err
	}
	if err := s.journal.Clear(); err != nil {
		unix.Close(fresh)
		return err
	}
	frozen := s.frozen()
	uncountErr := s.uncount(frozen)
	for _, l := range s.layers[:s.bottom()] {
		l.close()
	}
	s.layers = []*layer{{root: fresh, origin: Delta}, s.layers[s.bottom()]}
	s.rootTouched = false
	s.quota.settleDir(vpath.Root, fresh)
	clear(s.covered)
	return uncountErr
}
