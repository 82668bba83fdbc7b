package layer

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/view/layer/journal"
)

// readable returns an error if the pinned file cannot be opened.
func (o *Orphan) readable() error {
	if err := onlyRegular(&o.st); err != nil {
		return err
	}
	if o.pinned < 0 {
		return unix.EACCES
	}
	return nil
}

// copyUp copies a pinned file to the delta, without giving it a name in the view. For a
// regular file it copies the first size bytes, or all if size is negative. The inode number
// that the file shows stays the same. The caller holds o.mu.
func (o *Orphan) copyUp(size int64) error {
	if o.name != "" {
		return nil
	}
	s := o.s
	if err := s.quota.addInodes(1); err != nil {
		return err
	}
	name := s.temp()
	err := o.copyTo(name, size)
	if err == nil {
		err = s.takeAttributes(s.orphans, name, &o.st)
	}
	var st stat
	if err == nil {
		st, err = statAt(s.orphans, name)
	}
	if err != nil {
		_ = safefs.Unlink(s.orphans, name)
		s.quota.dropInodes(1)
		return err
	}
	s.inodes.set(st.ino, journal.Alias{Birth: st.birth, Shown: s.info(o.path, o.origin, &o.st).Ino})
	s.addOrphanName(st.ino, 1)
	s.quota.settle(&st)
	o.name = name
	o.unpin()
	return nil
}

// copyTo copies the pinned file to orphan/name.
func (o *Orphan) copyTo(name string, size int64) error {
	s := o.s
	switch o.st.kind() {
	case unix.S_IFLNK:
		return unix.Symlinkat(o.target, s.orphans, name)
	case unix.S_IFIFO, unix.S_IFSOCK:
		return unix.Mknodat(s.orphans, name, o.st.kind()|0o600, 0)
	}
	if err := o.readable(); err != nil {
		return err
	}
	if size < 0 || size > o.st.size {
		size = o.st.size
	}
	need := min(size, o.st.blocks*blockBytes) + 2*pageBytes
	if err := s.quota.Reserve(need); err != nil {
		return err
	}
	defer s.quota.Release(need)
	fd, err := openat2(s.orphans, name, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	cloned, err := s.clone(fd, &lower{st: o.st, origin: o.origin, fd: o.pinned, substitute: -1}, size)
	if cloned || err != nil {
		return err
	}
	return copyData(fd, o.pinned, size)
}
