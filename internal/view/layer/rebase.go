package layer

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/journal"
)

// Rebase records the source's present entry at p as the base of the delta's entry, if
// both are the same. It is for an entry that was applied and must stay in the delta,
// because the source's entry does not show (Options.Absent). If the entries differ, or
// one of them cannot be read, Rebase does nothing. Errors: NotFound if the stack shows
// nothing at p; Internal, Exhausted.
func (s *Stack) Rebase(p vpath.Path) error {
	if err := s.writable(); err != nil {
		return wrap("rebase", p, err)
	}
	s.ns.Lock()
	defer s.ns.Unlock()
	return wrap("rebase", p, s.rebase(p))
}

func (s *Stack) rebase(p vpath.Path) error {
	v, own, err := s.locate(p)
	if err != nil {
		return err
	}
	defer s.dirs.release(v)
	if own.part.layer != top {
		return nil
	}
	err = s.atSource(p, func(theirs entry) error {
		if same, err := s.isSame(own, theirs); !same || err != nil {
			return err
		}
		return s.journal.Append(journal.BaseRecord(p, s.baseWithContent(theirs)))
	})
	if err == unix.EACCES {
		return nil
	}
	return orAbsent(err)
}

// isSame compares type and content.
func (s *Stack) isSame(a, b entry) (bool, error) {
	switch {
	case a.st.kind() != b.st.kind():
		return false, nil
	case a.st.isDir():
		return true, nil
	case a.st.kind() == unix.S_IFLNK:
		x, err := readlinkAt(a.part.fd, a.stored)
		if err != nil {
			return false, err
		}
		y, err := readlinkAt(b.part.fd, b.stored)
		return x == y, err
	case !a.st.isRegular() || a.st.size != b.st.size:
		return false, nil
	}
	x, err := s.openToCompare(a)
	if err != nil {
		return false, err
	}
	defer x.Close()
	y, err := s.openToCompare(b)
	if err != nil {
		return false, err
	}
	defer y.Close()
	return safefs.HaveSameContent(x, y)
}

func (s *Stack) openToCompare(e entry) (*os.File, error) {
	fd, _, err := s.openEntry(e, false)
	if err != nil {
		return nil, err
	}
	return asOS(fd, e.stored), nil
}
