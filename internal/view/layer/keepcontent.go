package layer

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/journal"
)

// keepCovered records the content of the source's file at p before a new entry replaces the
// whiteout that hides it.
func (s *Stack) keepCovered(p vpath.Path, v *mergedDir) error {
	last := v.parts[len(v.parts)-1]
	if last.origin != Source {
		return nil
	}
	if _, ok := s.covered[p]; ok {
		return nil // once only: a program that makes and removes p repeatedly must not fill the log
	}
	st, err := statAt(last.fd, p.Base())
	if err != nil || !st.isRegular() {
		return nil // removed meanwhile, or not a file that could be merged later
	}
	s.covered[p] = struct{}{}
	return s.keepReplaced(p, entry{part: last, stored: p.Base(), st: st}, journal.LaterBaseRecord)
}

// keepReplaced records e, the source's entry at p, with its content if it is readable.
// record makes the record.
func (s *Stack) keepReplaced(p vpath.Path, e entry, record func(vpath.Path, Base) journal.Record) error {
	return s.journal.Append(record(p, s.baseWithContent(e)))
}

// baseWithContent returns the base of e, with the content of a regular file that can be read.
func (s *Stack) baseWithContent(e entry) Base {
	base := baseOf(&e.st)
	if e.st.isRegular() {
		s.addContent(&base, e)
	}
	return base
}

// addContent adds the content of e to base. If the content cannot be read or kept, a later
// merge is not possible.
func (s *Stack) addContent(base *Base, e entry) {
	fd, st, err := s.openEntry(e, false)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	whole := baseOf(&st)
	var content []byte
	if st.size > ContentMax {
		err = s.journal.Share(&whole, fd)
	} else {
		content, err = safefs.ReadRange(fd, 0, st.size)
	}
	if err != nil {
		return
	}
	if now, err := statFd(fd); err != nil || !st.unchanged(&now) {
		return
	}
	if st.size <= ContentMax && s.journal.Keep(&whole, content) != nil {
		return
	}
	*base = whole
}
