package layer

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// User is the ordinary user whose rights count in the source: in a user
// namespace of its own this process holds capabilities over what is the user's
// in owner and group, and over nothing else. What other users own is shown with
// the user's rights in the owner's permission bits, since whoever sees the view
// sees the user as the owner of everything.
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

// overflowID is the owner shown of what is nobody's in a user namespace
// (/proc/sys/kernel/overflowuid): to the user of this id everything looks its own.
const overflowID = 65534

// rights are what the user may do with a file of the source.
type rights struct {
	foreign bool   // another user owns it
	bits    uint32 // of allRights
}

// owned are the rights of who owns st. Without a user there is nothing that this
// process may not do.
func (s *Stack) owned(st *stat) rights {
	if s.o.User == nil {
		return rights{bits: allRights}
	}
	return rights{bits: st.mode >> 6 & allRights}
}

// isClosed reports whether st is a file of the source that its owner, the user, may
// not read, and this process could. What others own the kernel sees to.
func (s *Stack) isClosed(st *stat) bool {
	return s.o.User != nil && st.uid == s.o.User.UID && st.mode&0o400 == 0
}

// rightsTo returns the user's rights to name in dir, or with an empty name to dir
// itself, which st describes. Only of what another user owns it asks the kernel,
// which knows the user's groups and access control lists.
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
	// Whose a file is of which this user and another may do the same is not told.
	r.foreign = r.foreign || r.bits != s.owned(st).bits
	return r
}

// applyTo shows the rights in a mode: in the owner's bits.
func (r rights) applyTo(mode uint32) uint32 {
	if !r.foreign {
		return mode
	}
	return mode&^0o700 | r.bits<<6
}

// rightsAt returns the rights to e, the entry at p: for a directory of the delta
// those to the directory of the source that shows through it.
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

// source returns the rights to the directory of the source in v.
func (v *mergedDir) source() rights {
	if n := len(v.parts); n > 0 && v.parts[n-1].origin == Source {
		return v.parts[n-1].rights
	}
	return rights{}
}

// mayFill refuses to make or remove names in v where the source's directory
// belongs to another user who does not let this one.
func (v *mergedDir) mayFill() error {
	if r := v.source(); r.foreign && r.bits&mayWrite == 0 {
		return unix.EACCES
	}
	return nil
}

// mayRemove refuses to remove or replace name in v: where mayFill does, and what
// others own in another's sticky directory of the source.
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
	return nil //nolint:nilerr // what is not in the source is the sandbox's own
}

// mayWrite says of an entry that is to be written how to go on: errNotInTop, copy
// it up first. Errors: EACCES.
func (e *entry) mayWrite() error {
	if e.part.origin == Source && e.st.rights.foreign && e.st.rights.bits&mayWrite == 0 {
		return unix.EACCES
	}
	return errNotInTop
}

// showRights shows in i the rights to a directory of the delta through which the
// source's shows.
func (s *Stack) showRights(p vpath.Path, e *entry, i *Info) error {
	if s.o.User == nil || e.part.origin == Source || !e.st.isDir() {
		return nil
	}
	r, err := s.rightsAt(p, e)
	i.Mode = r.applyTo(i.Mode)
	return err
}

// maySetAttr refuses what only the owner may do to e, the entry at p, and what
// needs a right that the user does not have.
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

// mayLink refuses a further name for another's file that the user may not read
// and write, as the kernel does (proc(5), fs.protected_hardlinks).
func (e *entry) mayLink() error {
	const both = mayRead | mayWrite
	if e.part.origin == Source && e.st.rights.foreign && e.st.rights.bits&both != both {
		return unix.EPERM
	}
	return nil
}

// mayMoveWhole refuses to move v with its directory where its names are another's
// that the user could not remove one by one, as apply will have to. Errors: EXDEV.
func (v *mergedDir) mayMoveWhole() error {
	if v.mayFill() != nil {
		return unix.EXDEV
	}
	return nil
}
