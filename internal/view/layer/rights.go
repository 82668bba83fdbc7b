package layer

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// User is the ordinary user whose rights to the source apply. This process runs in a user
// namespace, where it has capabilities over files with the user's owner and group only. In
// the view the user owns every file, so the owner's permission bits of another user's file
// show the user's rights to it.
type User struct {
	UID uint32
}

// The rights, as in the permission bits.
const (
	mayRead   = 4
	mayWrite  = 2
	maySearch = 1
	allRights = mayRead | mayWrite | maySearch
)

// overflowID is the owner that a user namespace shows for files of unmapped users
// (/proc/sys/kernel/overflowuid). For the user with this id, all those files look like its
// own.
const overflowID = 65534

// rights is what the user may do with a file of the source.
type rights struct {
	foreign bool   // another user owns it
	bits    uint32 // of allRights
}

// owned returns the rights of the owner of st, or all rights if Options.User is nil.
func (s *Stack) owned(st *stat) rights {
	if s.o.User == nil {
		return rights{bits: allRights}
	}
	return rights{bits: st.mode >> 6 & allRights}
}

// isClosed reports whether the user owns the source file st and may not read it, although
// this process could. For other users' files the kernel checks.
func (s *Stack) isClosed(st *stat) bool {
	return s.o.User != nil && st.uid == s.o.User.UID && st.mode&0o400 == 0
}

// rightsTo returns the user's rights to name in dir, or with an empty name to dir itself,
// which st describes. For another user's file it asks the kernel, which knows the user's
// groups and access control lists.
func (s *Stack) rightsTo(dir int, name string, st *stat) rights {
	if s.o.User == nil || st.uid == s.o.User.UID && st.uid != overflowID {
		return s.owned(st)
	}
	r := rights{foreign: st.uid != s.o.User.UID}
	if st.kind() == unix.S_IFLNK {
		r.bits = allRights
		return r
	}
	// Without AT_EACCESS an ordinary user's capabilities do not count (access(2)).
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	for _, bit := range []uint32{mayRead, mayWrite, maySearch} {
		switch unix.Faccessat(dir, name, bit, flags) {
		case nil:
			r.bits |= bit
		case unix.EROFS: // the source cannot be written, the view can
			r.bits |= st.mode & bit
		}
	}
	// A file with the owner overflowID may belong to another user, which shows if the
	// rights differ.
	r.foreign = r.foreign || r.bits != s.owned(st).bits
	return r
}

// applyTo puts the rights into the owner's bits of a mode.
func (r rights) applyTo(mode uint32) uint32 {
	if !r.foreign {
		return mode
	}
	return mode&^0o700 | r.bits<<6
}

// rightsAt returns the rights to e, the entry at p. For a directory of the delta these are
// the rights to the source's directory that shows through it.
func (s *Stack) rightsAt(p vpath.Path, e *entry) (rights, error) {
	if e.part.origin == Source {
		return e.st.rights, nil
	}
	if s.o.User == nil || !e.st.isDir() {
		return s.owned(&e.st), nil
	}
	inside, err := s.mergedDir(p)
	if err != nil {
		return rights{}, err
	}
	defer s.dirs.release(inside)
	if r := inside.source(); r.foreign {
		return r, nil
	}
	return s.owned(&e.st), nil
}

// source returns the rights to the source's directory in v.
func (v *mergedDir) source() rights {
	if n := len(v.parts); n > 0 && v.parts[n-1].origin == Source {
		return v.parts[n-1].rights
	}
	return rights{}
}

// mayFill returns EACCES if the user may not make or remove names in the source's directory
// in v.
func (v *mergedDir) mayFill() error {
	if r := v.source(); r.foreign && r.bits&mayWrite == 0 {
		return unix.EACCES
	}
	return nil
}

// mayRemove returns an error if the user may not remove or replace name in v: as mayFill,
// and for other users' entries in another user's sticky directory of the source.
func (s *Stack) mayRemove(v *mergedDir, name string) error {
	if err := v.mayFill(); err != nil || !v.source().foreign {
		return err
	}
	pt := v.parts[len(v.parts)-1]
	if !pt.sticky {
		return nil
	}
	st, err := statAt(pt.fd, name)
	if err == nil && st.uid != s.o.User.UID {
		return unix.EPERM
	}
	return nil //nolint:nilerr // the entry is not in the source, so the sandbox made it
}

// mayWrite checks an entry before a write. Errors: EACCES; errNotInTop if it must be copied
// up first.
func (e *entry) mayWrite() error {
	if e.part.origin == Source && e.st.rights.foreign && e.st.rights.bits&mayWrite == 0 {
		return unix.EACCES
	}
	return errNotInTop
}

// showRights puts into i the rights to a directory of the delta through which the source's
// shows.
func (s *Stack) showRights(p vpath.Path, e *entry, i *Info) error {
	if s.o.User == nil || e.part.origin == Source || !e.st.isDir() {
		return nil
	}
	r, err := s.rightsAt(p, e)
	i.Mode = r.applyTo(i.Mode)
	return err
}

// maySetAttr returns an error if a changes what only the owner of e, the entry at p, may
// change, or needs a right that the user does not have.
func (s *Stack) maySetAttr(p vpath.Path, e *entry, a SetAttr) error {
	r, err := s.rightsAt(p, e)
	if err != nil {
		return err
	}
	return r.maySet(a)
}

func (r rights) maySet(a SetAttr) error {
	switch {
	case !r.foreign:
		return nil
	case a.OwnerOnly:
		return unix.EPERM
	case r.bits&mayWrite == 0:
		return unix.EACCES
	}
	return nil
}

// mayLink refuses another name for another user's file unless the user may read and write
// it, as the kernel does (proc(5), fs.protected_hardlinks).
func (e *entry) mayLink() error {
	const both = mayRead | mayWrite
	if e.part.origin == Source && e.st.rights.foreign && e.st.rights.bits&both != both {
		return unix.EPERM
	}
	return nil
}

// mayMoveWhole refuses to move v with its parent if the user may not remove the names in v
// one by one, as apply will have to. Errors: EXDEV.
func (v *mergedDir) mayMoveWhole() error {
	if v.mayFill() != nil {
		return unix.EXDEV
	}
	return nil
}
