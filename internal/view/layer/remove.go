package layer

import (
	"cmp"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/journal"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// Unlink removes the name p, which must not be a directory. With keep it returns an Orphan
// through which the content stays reachable. Errors: NotFound; Precondition (EISDIR);
// Unavailable (EBUSY) for a nested mount; Exhausted, with ENFILE for a large file of a
// lower layer if many orphans exist.
func (s *Stack) Unlink(p vpath.Path, keep bool) (*Orphan, error) {
	if err := s.writable(); err != nil {
		return nil, wrap("unlink", p, err)
	}
	for range tries {
		o, err := s.unlink(p, keep)
		if err != errNotInTop {
			return o, wrap("unlink", p, err)
		}
		if err := s.copyUp(p, -1); err != nil {
			return nil, wrap("unlink", p, err)
		}
	}
	return nil, wrap("unlink", p, unix.EBUSY)
}

func (s *Stack) unlink(p vpath.Path, keep bool) (*Orphan, error) {
	s.ns.Lock()
	defer s.ns.Unlock()
	v, e, err := s.locate(p)
	if err != nil {
		return nil, err
	}
	defer s.dirs.release(v)
	switch {
	case e.st.isDir():
		return nil, unix.EISDIR
	case e.st.mounted && e.part.origin == Source, s.isBusy(p):
		return nil, unix.EBUSY
	case e.isLinkedFrozen():
		return nil, errNotInTop
	}
	if err := s.mayRemove(v, p.Base()); err != nil {
		return nil, err
	}
	s.links.change(e.st.nlink > 1, p)
	var o *Orphan
	if keep {
		switch o, err = s.pin(p, e); {
		case err == errPinned:
			return nil, errNotInTop
		case err != nil:
			return nil, err
		}
	}
	if err := s.hide(p, v, e); err != nil {
		o.forgetLocked()
		return nil, err
	}
	if e.part.layer != top {
		return o, nil
	}
	if o != nil {
		err = o.moveIn(e)
	} else {
		err = s.removeStored(e, p.Base())
	}
	if err != nil {
		o.forgetLocked()
		return nil, err
	}
	return o, nil
}

// isLinkedFrozen reports whether e is a frozen file with several names. Such a file is
// copied up with all its names before one of them is removed, so that the others still name
// one file and show the right link count.
func (e *entry) isLinkedFrozen() bool {
	return e.part.origin == Frozen && e.st.nlink > 1 && !e.st.isDir()
}

// hide makes a whiteout at p if a lower layer would show through after the removal of e.
// While e is in the delta, it takes precedence over the whiteout.
func (s *Stack) hide(p vpath.Path, v *mergedDir, e entry) error {
	name := p.Base()
	if e.part.layer == top {
		_, err := s.find(v, name, top+1)
		if err == unix.ENOENT {
			return nil
		}
		if err != nil {
			return err
		}
		return s.makeWhiteout(e.part.fd, name)
	}
	if e.part.origin == Source {
		if err := s.journal.Append(journal.BaseRecord(p, baseOf(&e.st))); err != nil {
			return err
		}
	}
	up, err := s.ensureDir(p.Dir())
	if err != nil {
		return err
	}
	defer s.dirs.release(up)
	return s.makeWhiteout(up.parts[0].fd, name)
}

// removeStored unlinks e, a non-directory of the delta, and its name link.
func (s *Stack) removeStored(e entry, name string) error {
	if e.st.nlink <= 1 {
		s.freed(&e.st)
	}
	if err := unix.Unlinkat(e.part.fd, e.stored, 0); err != nil {
		return err
	}
	return dropNameLink(e.part.fd, name)
}

// freed records that the last name of a backing file will be removed. The caller calls it
// before the removal, so that a new file with the same inode number is not mistaken for the
// old one.
func (s *Stack) freed(st *stat) {
	s.forgetNumber(st.ino)
	s.quota.freed(st.ino)
}

// dropNameLink removes the name link of a hashed entry.
func dropNameLink(dir int, name string) error {
	if _, hashed := nameenc.Entry(name); !hashed {
		return nil
	}
	return safefs.Unlink(dir, nameenc.NameLink(name))
}

// Rmdir removes the directory p. It ignores children for which visible returns false; those
// of the source stay there. With a nil visible all children count. Errors: NotFound;
// Precondition (ENOTEMPTY, ENOTDIR); Unavailable (EBUSY) for the root and a nested mount.
func (s *Stack) Rmdir(p vpath.Path, visible func(name string) bool) error {
	if err := s.writable(); err != nil {
		return wrap("rmdir", p, err)
	}
	defer s.sweep()
	s.ns.Lock()
	defer s.ns.Unlock()
	return wrap("rmdir", p, s.rmdir(p, visible))
}

func (s *Stack) rmdir(p vpath.Path, visible func(name string) bool) error {
	v, e, err := s.locate(p)
	if err != nil {
		return err
	}
	defer s.dirs.release(v)
	switch {
	case !e.st.isDir():
		return unix.ENOTDIR
	case e.st.mounted && e.part.origin == Source, s.isMountPoint(p), s.isBusy(p):
		return unix.EBUSY
	}
	if err := s.mayRemove(v, p.Base()); err != nil {
		return err
	}
	if err := s.checkEmpty(p, visible); err != nil {
		return err
	}
	if err := s.forgetHidden(p); err != nil {
		return err
	}
	if err := s.hide(p, v, e); err != nil {
		return err
	}
	s.dirs.purge(p)
	if e.part.layer != top {
		return nil
	}
	return s.removeDir(e, p.Base())
}

// removeDir removes the delta's directory e in one step. e may contain whiteouts and
// entries that the program does not see.
func (s *Stack) removeDir(e entry, name string) error {
	s.freed(&e.st)
	err := unix.Unlinkat(e.part.fd, e.stored, unix.AT_REMOVEDIR)
	if err == nil {
		return dropNameLink(e.part.fd, name)
	}
	if err != unix.ENOTEMPTY && err != unix.EEXIST {
		return err
	}
	if err := s.moveToGarbage(e.part.fd, e.stored); err != nil {
		return err
	}
	return dropNameLink(e.part.fd, name)
}

// moveToGarbage moves name out of dir in one step; sweep removes it later.
func (s *Stack) moveToGarbage(dir int, name string) error {
	gone := s.temp()
	if err := unix.Renameat2(dir, name, s.work, gone, unix.RENAME_NOREPLACE); err != nil {
		return err
	}
	s.garbageMu.Lock()
	defer s.garbageMu.Unlock()
	s.garbage = append(s.garbage, gone)
	return nil
}

// removeAll removes name in dir with everything below. It first moves each directory to
// work, so that neither depth nor open descriptors grow. It calls freed, which may be nil,
// for each file before it removes the last name, from several goroutines.
func removeAll(dir int, name string, work int, seq *atomic.Uint64, freed func(*stat)) error {
	st, err := statAt(dir, name)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return err
	}
	if freed != nil && (st.isDir() || st.nlink <= 1) {
		freed(&st)
	}
	if !st.isDir() {
		return safefs.Unlink(dir, name)
	}
	if err := openUp(dir, name, &st); err != nil {
		return err
	}
	pending := []string{strconv.FormatUint(seq.Add(1), 10)}
	if err := unix.Renameat(dir, name, work, pending[0]); err != nil {
		return err
	}
	for len(pending) > 0 {
		if pending, err = removeEach(work, pending, seq, freed); err != nil {
			return err
		}
	}
	return nil
}

// removers is how many goroutines remove many directories.
const removers = 4

// removeEach removes the directories names of work, concurrently, because the kernel takes the
// time. It returns the new names of their subdirectories, which it has moved to work.
func removeEach(work int, names []string, seq *atomic.Uint64, freed func(*stat)) (moved []string, err error) {
	var next atomic.Int64
	var failed atomic.Bool
	var mu sync.Mutex
	var group sync.WaitGroup
	for range min(removers, runtime.GOMAXPROCS(0), len(names)) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(names)) && !failed.Load(); i = next.Add(1) - 1 {
				below, removeErr := removeOne(work, names[i], seq, freed)
				mu.Lock()
				moved, err = append(moved, below...), cmp.Or(err, removeErr)
				mu.Unlock()
				if removeErr != nil {
					failed.Store(true)
				}
			}
		})
	}
	group.Wait()
	return moved, err
}

// removeOne removes the directory name of work. It returns the new names of its subdirectories.
func removeOne(work int, name string, seq *atomic.Uint64, freed func(*stat)) (moved []string, err error) {
	if moved, err = emptyOne(work, name, seq, freed); err == nil {
		err = unix.Unlinkat(work, name, unix.AT_REMOVEDIR)
	}
	return moved, err
}

// openUp gives the owner the permission bits to remove the entries of the directory name,
// in case this process has no capability to do so.
func openUp(dir int, name string, st *stat) error {
	if st.mode&0o700 == 0o700 {
		return nil
	}
	return unix.Fchmodat(dir, name, 0o700, 0)
}

// emptyOne empties the directory name of work. It moves subdirectories to work and returns
// their new names.
func emptyOne(work int, name string, seq *atomic.Uint64, freed func(*stat)) (moved []string, err error) {
	fd, err := openDir(work, name)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var names []string
	err = safefs.ReadNames(fd, func(name []byte, _ uint32, _ uint64) error {
		names = append(names, string(name))
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		st, err := statAt(fd, n)
		if err != nil {
			return nil, err
		}
		if freed != nil && (st.isDir() || st.nlink <= 1) {
			freed(&st)
		}
		if st.isDir() {
			if err := openUp(fd, n, &st); err != nil {
				return nil, err
			}
			up := strconv.FormatUint(seq.Add(1), 10)
			err = unix.Renameat(fd, n, work, up)
			moved = append(moved, up)
		} else {
			err = unix.Unlinkat(fd, n, 0)
		}
		if err != nil {
			return nil, err
		}
	}
	return moved, nil
}

// emptyDir removes everything in dir. It first raises seq above the numbers that it finds
// as names.
func emptyDir(dir, work int, seq *atomic.Uint64) error {
	var names []string
	err := safefs.ReadNames(dir, func(name []byte, _ uint32, _ uint64) error {
		names = append(names, string(name))
		return nil
	})
	if err != nil {
		return err
	}
	for _, n := range names {
		if used, err := strconv.ParseUint(n, 10, 64); err == nil && used > seq.Load() {
			seq.Store(used)
		}
	}
	for _, n := range names {
		if err := removeAll(dir, n, work, seq, nil); err != nil {
			return err
		}
	}
	return nil
}

// emptyStored removes all entries of a directory of the delta.
func (s *Stack) emptyStored(fd int) error {
	var names []string
	err := safefs.ReadNames(fd, func(name []byte, _ uint32, _ uint64) error {
		names = append(names, string(name))
		return nil
	})
	for _, name := range names {
		if err == nil {
			err = removeAll(fd, name, s.work, &s.seq, s.freed)
		}
	}
	return err
}

// discard removes an unfinished file from work. Open sweeps what remains.
func (s *Stack) discard(name string) {
	_ = removeAll(s.work, name, s.work, &s.seq, nil)
}

// sweep removes what moveToGarbage moved. Callers defer it before they lock ns, so that it
// runs without ns.
func (s *Stack) sweep() {
	s.garbageMu.Lock()
	names := s.garbage
	s.garbage = nil
	s.garbageMu.Unlock()
	for _, name := range names {
		_ = removeAll(s.work, name, s.work, &s.seq, s.freed) // what it leaves, Open sweeps
	}
}
