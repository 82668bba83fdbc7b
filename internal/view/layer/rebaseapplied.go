package layer

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/journal"
)

// Record replaces the recorded base of p; nil removes it. It is for a caller that has newer
// knowledge of the base than the stack. Errors: Internal, Exhausted.
func (s *Stack) Record(p vpath.Path, base *Base) error {
	if err := s.writable(); err != nil {
		return wrap("record", p, err)
	}
	s.ns.Lock()
	defer s.ns.Unlock()
	if base == nil || base.Absent {
		delete(s.covered, p)
		return wrap("record", p, s.journal.Append(journal.DropRecord(p)))
	}
	return wrap("record", p, s.journal.Append(journal.BaseRecord(p, *base)))
}

// rebaseApplied records the result of an apply at these paths as the base of the delta's
// entries there. The entries, or their removal, came after what was applied, so that
// the next apply does not conflict with this one. It records nothing where the source
// has changed since the apply: that is a conflict. A crash that loses a record leaves
// the earlier one, which is a conflict too. paths has the entries of a directory before
// the directory. at is the path that failed.
func (d *dropping) rebaseApplied(paths []vpath.Path, applied map[vpath.Path]Base) (at vpath.Path, err error) {
	found := false
	for _, p := range paths {
		base, ok := applied[p]
		if !ok {
			continue
		}
		if err := d.rebaseOne(p, &base); err != nil {
			return p, err
		}
		found = true
	}
	if !found {
		return vpath.Root, nil
	}
	return vpath.Root, d.s.journal.SyncAll()
}

func (d *dropping) rebaseOne(p vpath.Path, applied *Base) error {
	s := d.s
	var now Base
	err := s.atSource(p, func(e entry) error {
		now = s.baseWithContent(e)
		if e.st.kind() == unix.S_IFLNK {
			if sum, err := s.hashAt(e.part.fd, e.stored, &e.st); err == nil {
				now.SHA256 = sum
			}
		}
		return nil
	})
	switch {
	case isAbsent(err) && applied.Absent:
		delete(d.bases, p)
		delete(s.covered, p)
		return s.journal.Append(journal.DropRecord(p))
	case isAbsent(err), err == unix.EACCES, err == unix.EXDEV:
		return nil
	case err != nil:
		return err
	case !isStill(applied, &now):
		return nil
	}
	if counts, err := d.hideIfRemoved(p, now.Mode); err != nil || !counts {
		return err
	}
	d.bases[p] = now
	return s.journal.Append(journal.BaseRecord(p, now))
}

// hideIfRemoved makes a whiteout for an entry that an apply made and that the sandbox had
// removed before. When the sandbox removed it, the source had nothing to hide. It reports
// whether the delta has or hides an entry at p.
func (d *dropping) hideIfRemoved(p vpath.Path, mode uint32) (bool, error) {
	if p.IsRoot() {
		return true, nil
	}
	s := d.s
	v, e, err := s.locate(p)
	if err != nil {
		if err == unix.EACCES {
			return false, nil
		}
		return !s.isLeftOut(p, mode&typeMask), orAbsent(err)
	}
	defer s.dirs.release(v)
	if e.part.origin != Source {
		return true, nil
	}
	if _, known := d.bases[p]; known || e.st.isDir() && s.checkEmpty(p, nil) != nil {
		return false, nil
	}
	defer s.dirs.purge(p)
	return true, s.hide(p, v, e)
}

// isStill reports whether now is the entry that b recorded, unchanged. The entries of
// a directory do not count.
func isStill(b, now *Base) bool {
	if b.Mode&typeMask == unix.S_IFDIR {
		return b.Dev == now.Dev && b.Ino == now.Ino && b.Mode == now.Mode
	}
	return b.SameIdentity(now)
}

// isLeftOut reports whether the view hides the source's entry at p, of that kind.
func (s *Stack) isLeftOut(p vpath.Path, kind uint32) bool {
	if s.o.Plain && !isPlain(kind) {
		return true
	}
	absent := s.o.Absent
	if absent == nil {
		return false
	}
	for a := range p.Ancestors() {
		if absent(a, true) {
			return true
		}
	}
	return absent(p, kind == unix.S_IFDIR)
}
