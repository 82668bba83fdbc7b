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

// forgetHidden drops the records of the children that remain in the directory p before p is
// removed. The program that removes p does not see them, so it does not remove them from
// the source. The records of children that it removed earlier stay.
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
