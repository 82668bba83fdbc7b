package layer

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/journal"
)

// keepingTimes runs do, then restores the modification time of dir. do changes names in dir
// that the view does not show.
func keepingTimes(dir int, do func() error) error {
	st, err := statFd(dir)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return setTimes(dir, ".", nil, &st.mtime)
}

// takeAttributes gives dir/name the mode and times of from, of which it is a copy, and the
// owner where this process may set it.
func (s *Stack) takeAttributes(dir int, name string, from *stat) error {
	st, err := statAt(dir, name)
	if err != nil {
		return err
	}
	return giveAttributes(dir, name, &st, from)
}

// giveAttributes is takeAttributes for a file with the attributes st.
func giveAttributes(dir int, name string, st, from *stat) error {
	if st.uid != from.uid || st.gid != from.gid {
		err := unix.Fchownat(dir, name, int(from.uid), int(from.gid), unix.AT_SYMLINK_NOFOLLOW)
		if err != nil && err != unix.EPERM && err != unix.EINVAL { // EINVAL: not mapped in our user namespace
			return err
		}
	}
	if from.kind() != unix.S_IFLNK && st.mode&0o7777 != from.mode&modeMask {
		if err := unix.Fchmodat(dir, name, from.mode&modeMask, 0); err != nil {
			return err
		}
	}
	return setTimes(dir, name, &from.atime, &from.mtime)
}

// ensureDir makes the directory p in the delta if it is absent there, empty, so that it
// merges with the lower layers. It returns the merged directory. The caller holds ns
// exclusively.
func (s *Stack) ensureDir(p vpath.Path) (*mergedDir, error) {
	v, err := s.mergedDir(p)
	if err != nil || v.inTop() {
		return v, err
	}
	defer s.dirs.release(v)
	if v.sealed {
		return nil, unix.EROFS
	}
	l := &lower{origin: v.parts[0].origin, fd: -1, substitute: -1}
	if l.st, err = statFd(v.parts[0].fd); err != nil {
		return nil, err
	}
	up, err := s.ensureDir(p.Dir())
	if err != nil {
		return nil, err
	}
	defer s.dirs.release(up)
	if err := s.quota.addInodes(1); err != nil {
		return nil, err
	}
	if err := s.makeMerged(newPlace(up, p), l); err != nil {
		return nil, err
	}
	s.dirs.forget(p)
	return s.mergedDir(p)
}

// makeMerged makes a directory at pl in the delta, which merges with l.
func (s *Stack) makeMerged(pl *place, l *lower) error {
	name := s.temp()
	err := unix.Mkdirat(s.work, name, 0o700)
	if err != nil {
		s.quota.dropInodes(1)
		return err
	}
	st, err := statAt(s.work, name)
	if err == nil {
		err = s.takeAttributes(s.work, name, &l.st)
	}
	if err == nil {
		_, err = s.record(pl.path, l, &st, baseOf(&l.st))
	}
	if err == nil {
		err = pl.before()
	}
	if err == nil {
		err = keepingTimes(pl.dir, func() error {
			return unix.Renameat2(s.work, name, pl.dir, pl.stored, unix.RENAME_NOREPLACE)
		})
	}
	if err != nil {
		s.abandon(name)
	}
	return err
}

// touchRoot makes the delta's root determine the root's mode and times.
func (s *Stack) touchRoot() error {
	if s.rootTouched {
		return nil
	}
	st, err := statFd(s.layers[s.bottom()].root)
	if err != nil {
		return err
	}
	if err := s.takeAttributes(s.layers[top].root, ".", &st); err != nil {
		return err
	}
	if err := s.journal.Append(journal.BaseRecord(vpath.Root, baseOf(&st))); err != nil {
		return err
	}
	s.rootTouched = true
	return nil
}
