package layer

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Lookup describes the entry at p. Errors: NotFound; Precondition (ENOTDIR) if a parent is
// not a directory; Denied if the user may not search a directory of the source.
func (s *Stack) Lookup(p vpath.Path) (Info, error) {
	if !p.IsRoot() {
		return s.LookupIn(p.Dir(), p.Base())
	}
	s.ns.RLock()
	defer s.ns.RUnlock()
	i, err := s.rootInfo()
	return i, wrap("stat", p, err)
}

// LookupIn describes name in the directory dir, as Lookup does.
func (s *Stack) LookupIn(dir vpath.Path, name string) (Info, error) {
	s.ns.RLock()
	defer s.ns.RUnlock()
	p := dir.Child(name)
	i, err := s.lookupShown(p)
	return i, wrap("stat", p, err)
}

// LookupStored is Lookup without regard to transforms.
func (s *Stack) LookupStored(p vpath.Path) (Info, error) {
	if p.IsRoot() {
		return s.Lookup(p)
	}
	s.ns.RLock()
	defer s.ns.RUnlock()
	i, err := s.lookup(p)
	return i, wrap("stat", p, err)
}

// lookupShown is lookup with the transform of the entry.
func (s *Stack) lookupShown(p vpath.Path) (Info, error) {
	v, e, err := s.locate(p)
	if err != nil {
		return Info{}, err
	}
	defer s.dirs.release(v)
	t := s.transformOf(p, &e)
	if t == nil {
		return s.describe(p, &e)
	}
	i := s.info(p, e.part.origin, &e.st)
	err = s.transformInfo(p, &e, t, &i)
	return i, err
}

// lookup describes the entry at p, which is not the root, without regard to transforms.
func (s *Stack) lookup(p vpath.Path) (Info, error) {
	v, e, err := s.locate(p)
	if err != nil {
		return Info{}, err
	}
	defer s.dirs.release(v)
	return s.describe(p, &e)
}

// describe describes the entry e at p.
func (s *Stack) describe(p vpath.Path, e *entry) (Info, error) {
	i := s.info(p, e.part.origin, &e.st)
	s.substituteInfo(p, e, &i)
	return i, s.showRights(p, e, &i)
}

// rootInfo describes the root. The source's root counts until the sandbox changes its mode.
func (s *Stack) rootInfo() (Info, error) {
	src, err := statFd(s.layers[s.bottom()].root)
	if err != nil {
		return Info{}, err
	}
	src.rights = s.rightsTo(s.sourceRoot, "", &src)
	if !s.rootTouched {
		return s.info(vpath.Root, Source, &src), nil
	}
	st, err := statFd(s.layers[top].root)
	if err != nil {
		return Info{}, err
	}
	i := s.info(vpath.Root, Delta, &st)
	i.Ino = s.sourceIno(vpath.Root, &src)
	i.Mode = src.rights.applyTo(i.Mode)
	return i, nil
}

// Readlink returns the target of the symbolic link at p. Errors: NotFound; Invalid if p is
// not a symbolic link.
func (s *Stack) Readlink(p vpath.Path) (string, error) {
	s.ns.RLock()
	defer s.ns.RUnlock()
	target, err := s.readlink(p)
	return target, wrap("readlink", p, err)
}

func (s *Stack) readlink(p vpath.Path) (string, error) {
	if p.IsRoot() {
		return "", unix.EINVAL
	}
	v, e, err := s.locate(p)
	if err != nil {
		return "", err
	}
	defer s.dirs.release(v)
	return readlinkAt(e.part.fd, e.stored)
}

// ReadDir lists the directory p without "." and "..", in no particular order. It also lists the
// files that a transform makes absent. Errors: NotFound, Precondition (ENOTDIR), Denied.
func (s *Stack) ReadDir(p vpath.Path) ([]DirEntry, error) {
	s.ns.RLock()
	defer s.ns.RUnlock()
	v, err := s.mergedDir(p)
	if err != nil {
		return nil, wrap("list", p, err)
	}
	defer s.dirs.release(v)
	var entries []DirEntry
	err = s.list(v, func(c child) {
		entries = append(entries, DirEntry{Name: c.name, Mode: c.mode, Ino: c.shown})
	})
	return entries, wrap("list", p, err)
}

// Invalidate drops the cached source directories at and below the paths, after they were
// moved or removed in the source. Without the call the stack notices within a second.
func (s *Stack) Invalidate(paths ...vpath.Path) {
	for _, p := range paths {
		s.dirs.purge(p)
	}
}
