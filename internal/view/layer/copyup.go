package layer

import (
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/journal"
)

var (
	errNotInTop = errors.New("not in the delta")
	errChanged  = errors.New("changed while it was copied")
)

// CopyUp copies p to the delta unchanged, if the delta does not have it. The copy of a
// source file and the record of its base are durable before the copy gets its name, so that
// a crash leaves the old file or the new one. Errors: NotFound; Denied (a device, or a file
// that the user may not read); Exhausted; Unavailable (EBUSY) if the source kept changing.
func (s *Stack) CopyUp(p vpath.Path) (Info, error) {
	if err := s.copyUp(p, -1); err != nil {
		return Info{}, wrap("copy up", p, err)
	}
	return s.Lookup(p)
}

// flights lets one caller at a time copy a path.
type flights struct {
	mu sync.Mutex
	m  map[vpath.Path]chan struct{}
}

// enter starts a flight for p and returns the function that ends it. If another caller's
// flight is under way, enter waits for its end and returns nil.
func (f *flights) enter(p vpath.Path) (leave func()) {
	f.mu.Lock()
	if other, ok := f.m[p]; ok {
		f.mu.Unlock()
		<-other
		return nil
	}
	defer f.mu.Unlock()
	if f.m == nil {
		f.m = map[vpath.Path]chan struct{}{}
	}
	done := make(chan struct{})
	f.m[p] = done
	return func() {
		f.mu.Lock()
		delete(f.m, p)
		f.mu.Unlock()
		close(done)
	}
}

// copyUp copies p to the delta if the delta does not have it. For a regular file it copies
// the first size bytes, or all if size is negative.
func (s *Stack) copyUp(p vpath.Path, size int64) error {
	if err := s.writable(); err != nil || p.IsRoot() {
		return err
	}
	for range tries {
		if err := s.copyUpOnce(p, size); err != errChanged {
			return err
		}
	}
	return unix.EBUSY
}

func (s *Stack) copyUpOnce(p vpath.Path, size int64) error {
	l, err := s.openLower(p, size)
	if err != nil || l == nil {
		return err
	}
	defer l.close()
	leave := s.flights.enter(p)
	if leave == nil {
		return errChanged // or another caller copied it: the next round finds out
	}
	defer leave()
	if l.st.isDir() {
		return s.copyUpDir(p)
	}
	if !l.placed {
		// First, so that a copy for whose directory there is no room leaves no
		// record: repeated, that would fill the disk past the quota.
		if err := s.copyUpDir(p.Dir()); err != nil {
			return err
		}
	}
	if l.st.isRegular() {
		return s.copyUpRegular(p, l, size)
	}
	return s.copyUpSpecial(p, l)
}

// lower is a file of a lower layer that will be copied up.
type lower struct {
	st     stat
	origin Origin
	fd     int    // of a regular file, else -1
	target string // of a symbolic link
	placed bool   // its directory is in the delta
	unread bool   // the user may not read the file, and no content is wanted

	substitute int  // the replacement content, see Substitutes; -1: none
	shown      stat // of substitute
}

func (l *lower) close() {
	for _, fd := range []int{l.fd, l.substitute} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// copyMode returns the permission bits of the copy. The user owns the copy, so rights that
// came from the group or other class of the original move to the owner's bits.
func (l *lower) copyMode() uint32 {
	mode := l.st.mode & modeMask
	if l.st.rights.foreign {
		mode |= l.st.rights.bits << 6
	}
	return mode
}

// content is the file to copy.
func (l *lower) content() (fd int, st *stat) {
	if l.substitute >= 0 {
		return l.substitute, &l.shown
	}
	return l.fd, &l.st
}

// openLower opens p in the layers below the delta. It returns nil if p is in the delta.
// size is as in copyUp.
func (s *Stack) openLower(p vpath.Path, size int64) (*lower, error) {
	s.ns.RLock()
	defer s.ns.RUnlock()
	v, e, err := s.locate(p)
	if err != nil {
		return nil, err
	}
	defer s.dirs.release(v)
	if e.part.layer == top {
		return nil, nil
	}
	l := &lower{st: e.st, origin: e.part.origin, fd: -1, substitute: -1, placed: v.inTop()}
	switch {
	case e.st.mounted && l.origin == Source:
		return nil, unix.EROFS
	case e.st.isRegular():
		err = s.openToCopy(p, e, l, size)
	case e.st.kind() == unix.S_IFLNK:
		l.target, err = readlinkAt(e.part.fd, e.stored)
	case e.st.kind() == unix.S_IFCHR, e.st.kind() == unix.S_IFBLK:
		return nil, unix.EPERM
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// openToCopy opens the regular file e and its replacement content, if any.
func (s *Stack) openToCopy(p vpath.Path, e entry, l *lower, size int64) (err error) {
	if s.transformOf(p, &e) != nil {
		return unix.EACCES
	}
	l.fd, l.st, err = s.openEntry(e, false)
	if err == unix.EACCES && (size == 0 || e.st.size == 0) {
		// A user who may write a file but not read it can truncate it, and write to an
		// empty one.
		l.unread = true
		l.fd, l.st, err = openRegular(e, unix.O_PATH)
	}
	if err != nil {
		return err
	}
	if l.unread && l.st.size > 0 && size != 0 {
		unix.Close(l.fd)
		return errChanged
	}
	fd, x, ok, err := s.openSubstitute(p, &e)
	if err == nil && ok {
		l.substitute, l.shown = fd, x.is
		if !x.of.unchanged(&l.st) {
			err = errChanged
		}
	}
	if err != nil {
		l.close()
	}
	return err
}

func (s *Stack) copyUpDir(p vpath.Path) error {
	s.ns.Lock()
	defer s.ns.Unlock()
	v, err := s.ensureDir(p)
	if err != nil {
		return err
	}
	s.dirs.release(v)
	return nil
}

// copyUpSpecial copies a symbolic link, a FIFO or a socket. It makes the copy in work, like
// copyUpRegular, but does not sync it.
func (s *Stack) copyUpSpecial(p vpath.Path, l *lower) error {
	if err := s.quota.Reserve(entryBytes); err != nil {
		return err
	}
	defer s.quota.Release(entryBytes)
	if err := s.quota.addInodes(1); err != nil {
		return err
	}
	name := s.temp()
	var err error
	if l.st.kind() == unix.S_IFLNK {
		err = unix.Symlinkat(l.target, s.work, name)
	} else {
		err = unix.Mknodat(s.work, name, l.st.kind()|0o600, 0)
	}
	if err == nil {
		err = s.takeAttributes(s.work, name, &l.st)
	}
	base := baseOf(&l.st)
	if err == nil && l.origin == Source && l.st.kind() == unix.S_IFLNK {
		err = s.journal.Keep(&base, []byte(l.target))
	}
	if err == nil {
		err = s.commit(p, l, name, base)
	}
	if err != nil {
		s.abandon(name)
	}
	return err
}

// abandon removes an unfinished copy.
func (s *Stack) abandon(name string) {
	st, err := statAt(s.work, name)
	if err == nil {
		s.forgetNumber(st.ino)
	}
	if err != nil || !s.quota.freed(st.ino) {
		s.quota.dropInodes(1)
	}
	s.discard(name)
}

func (s *Stack) copyUpRegular(p vpath.Path, l *lower, size int64) error {
	_, st := l.content()
	if size < 0 || size > st.size {
		size = st.size
	}
	need := min(size, st.blocks*blockBytes) + 2*pageBytes
	if err := s.quota.Reserve(need); err != nil {
		return err
	}
	defer s.quota.Release(need)
	if err := s.quota.addInodes(1); err != nil {
		return err
	}
	name := s.temp()
	fd, err := openat2(s.work, name, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, l.copyMode())
	if err != nil {
		s.quota.dropInodes(1)
		return err
	}
	defer unix.Close(fd)
	err = s.fillCopy(p, l, fd, name, size)
	if err != nil {
		s.abandon(name)
	}
	return err
}

// fillCopy copies content and attributes into work/name and gives it p's name.
func (s *Stack) fillCopy(p vpath.Path, l *lower, fd int, name string, size int64) error {
	awaitTick(&l.st)
	content, err := s.copyContent(fd, l, size)
	if err != nil {
		return err
	}
	base := baseOf(&l.st)
	if l.origin == Source && content == nil && !l.unread {
		if err := s.journal.Share(&base, l.fd); err != nil {
			return err
		}
	}
	now, err := statFd(l.fd)
	if err != nil {
		return err
	}
	if !l.st.unchanged(&now) {
		return errChanged
	}
	st, err := statFd(fd)
	if err != nil {
		return err
	}
	like := l.st
	like.mode |= l.copyMode()
	if err := giveAttributes(s.work, name, &st, &like); err != nil {
		return err
	}
	if content != nil {
		if err := s.journal.Keep(&base, content); err != nil {
			return err
		}
	}
	if err := s.recordDurably(p, l, fd, &st, base); err != nil {
		return err
	}
	return s.commitCopy(p, l, name)
}

// tick is the coarsest resolution of the kernel's file times (CONFIG_HZ_100; since Linux
// 6.13 they are finer for files that somebody stats).
const tick = 10 * time.Millisecond

// awaitTick waits until a change to the file would change its times, so that a change
// during the copy does not go unnoticed.
func awaitTick(st *stat) {
	changed := time.Unix(st.ctime.Sec, st.ctime.Nsec)
	if age := time.Since(changed); age < tick {
		time.Sleep(min(tick, tick-age))
	}
}

// recordDurably makes the copy (open as fd), the base of p and the inode number of the copy
// durable, with one flush of the disk where the journal allows it. An empty copy needs no
// sync.
func (s *Stack) recordDurably(p vpath.Path, l *lower, fd int, st *stat, base Base) error {
	at, err := s.record(p, l, st, base)
	if err != nil {
		return err
	}
	landed := false
	if st.size > 0 {
		_ = unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE) // writes back the copy while the log syncs
		landed = s.journal.WriteOut(at)
		if err := unix.Fdatasync(fd); err != nil {
			return err
		}
	}
	if landed {
		s.journal.ConfirmFlush(at)
		return nil
	}
	return s.journal.Sync(at)
}

// record appends the records for the copy st of l.
func (s *Stack) record(p vpath.Path, l *lower, st *stat, base Base) (journal.Span, error) {
	alias := journal.Alias{Birth: st.birth, Shown: s.info(p, l.origin, &l.st).Ino}
	records := []journal.Record{journal.AliasRecord(st.ino, alias)}
	if l.origin == Source {
		records = append(records, journal.BaseRecord(p, base))
	}
	at, err := s.journal.AppendSpan(records...)
	if err != nil {
		return journal.Span{}, err
	}
	s.inodes.set(st.ino, alias)
	s.quota.settle(st)
	return at, nil
}

// commit records the finished copy work/name and gives it p's name.
func (s *Stack) commit(p vpath.Path, l *lower, name string, base Base) error {
	st, err := statAt(s.work, name)
	if err != nil {
		return err
	}
	if _, err := s.record(p, l, &st, base); err != nil {
		return err
	}
	return s.commitCopy(p, l, name)
}

// commitCopy moves the recorded copy work/name to p if p is unchanged since it was copied.
// If p has changed, the record stays. At worst, the record later causes a conflict when an
// entry made at p is applied.
func (s *Stack) commitCopy(p vpath.Path, l *lower, name string) error {
	s.ns.Lock()
	defer s.ns.Unlock()
	v, e, err := s.locate(p)
	if err == unix.ENOENT || err == unix.ENOTDIR {
		return errChanged
	}
	if err != nil {
		return err
	}
	s.dirs.release(v)
	if e.part.layer == top || !e.st.unchanged(&l.st) {
		return errChanged
	}
	up, err := s.ensureDir(p.Dir())
	if err != nil {
		return err
	}
	defer s.dirs.release(up)
	pl := newPlace(up, p)
	if err := pl.before(); err != nil {
		return err
	}
	s.links.change(l.origin == Frozen && l.st.nlink > 1, p)
	if err := keepingTimes(pl.dir, func() error {
		return unix.Renameat2(s.work, name, pl.dir, pl.stored, unix.RENAME_NOREPLACE)
	}); err != nil {
		return err
	}
	if l.origin == Frozen && l.st.nlink > 1 {
		return s.linkFrozenNames(p, e.part.layer, &l.st, pl)
	}
	return nil
}
