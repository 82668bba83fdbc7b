package layer

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/journal"
)

func (s *Stack) checkEmpty(p vpath.Path, visible func(name string) bool) error {
	dir, err := s.mergedDir(p)
	if err != nil {
		return err
	}
	defer s.dirs.release(dir)
	full := false
	err = s.list(dir, func(c child) {
		full = full || visible == nil || visible(c.name)
	})
	if err == nil && full {
		return unix.ENOTEMPTY
	}
	return err
}

// forgetHidden forgets what the sandbox recorded of the children that are left
// in the directory p, which is about to go: whoever removes it does not see
// them, so it is not the sandbox that removes them from the source. What it
// removed there before stays recorded.
func (s *Stack) forgetHidden(p vpath.Path) error {
	dir, err := s.mergedDir(p)
	if err != nil {
		return err
	}
	changed := false
	err = s.list(dir, func(c child) { changed = changed || c.layer < s.bottom() })
	s.dirs.release(dir)
	if err != nil || !changed {
		return err
	}
	bases, err := s.journal.Bases()
	if err != nil {
		return err
	}
	var drops []journal.Record
	for q := range bases {
		if q == p || !q.Within(p) {
			continue
		}
		_, err := s.lookup(q)
		if err == nil {
			drops = append(drops, journal.DropRecord(q))
			delete(s.covered, q)
		} else if !isAbsent(err) {
			return err
		}
	}
	return s.journal.Append(drops...)
}
