package layer

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// openSourceDir opens the source's directory that contains p, and returns the name of p in
// it; for the root it returns "." in the root. The caller closes dir.
func (s *Stack) openSourceDir(p vpath.Path) (dir int, name string, err error) {
	name = p.Base()
	switch {
	case p.IsRoot():
		name = "."
	case isDots(name):
		return -1, "", unix.EINVAL
	}
	if p.IsOwn() {
		return -1, "", unix.ENOENT
	}
	dir, err = s.sourceDirAt(p.Dir())
	return dir, name, err
}

// sourceDirAt opens an O_PATH handle on the directory p of the source. The source has no
// own entries.
func (s *Stack) sourceDirAt(p vpath.Path) (int, error) {
	if p.IsOwn() {
		return -1, unix.ENOENT
	}
	return openDirAt(s.sourceRoot, p.Rel())
}

// atSource calls do with the source's entry p.
func (s *Stack) atSource(p vpath.Path, do func(e entry) error) error {
	dir, name, err := s.openSourceDir(p)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	st, err := statAt(dir, name)
	if err != nil {
		return err
	}
	st.rights = s.rightsTo(dir, name, &st)
	return do(entry{part: part{origin: Source, fd: dir}, stored: name, st: st})
}

// SourceInfo describes p in the source, whatever the layers above have. Errors: NotFound,
// Precondition (ENOTDIR), Denied.
func (s *Stack) SourceInfo(p vpath.Path) (Info, error) {
	var i Info
	err := s.atSource(p, func(e entry) error {
		i = s.info(p, Source, &e.st)
		return nil
	})
	return i, wrap("stat source", p, err)
}

// OpenSource opens the regular file p of the source for reading. Errors: as
// Open.
func (s *Stack) OpenSource(p vpath.Path) (*os.File, error) {
	var f *os.File
	err := s.atSource(p, func(e entry) error {
		fd, _, err := s.openEntry(e, false)
		if err == nil {
			f = asOS(fd, p.String())
		}
		return err
	})
	return f, wrap("open source", p, err)
}

// SourceReadlink returns the target of the symbolic link p of the source.
func (s *Stack) SourceReadlink(p vpath.Path) (string, error) {
	var target string
	err := s.atSource(p, func(e entry) (err error) {
		target, err = readlinkAt(e.part.fd, e.stored)
		return err
	})
	return target, wrap("readlink source", p, err)
}

// ReadSourceDir lists the directory p of the source. A mount nested in the
// source has no entries. Errors: NotFound, Precondition (ENOTDIR), Denied.
func (s *Stack) ReadSourceDir(p vpath.Path) ([]DirEntry, error) {
	fd, err := s.sourceDirAt(p)
	if err == unix.EXDEV {
		return nil, nil
	}
	if err != nil {
		return nil, wrap("list source", p, err)
	}
	defer unix.Close(fd)
	v := &mergedDir{path: p}
	var entries []DirEntry
	pt := part{origin: Source, fd: fd}
	st, err := statFd(fd)
	if err != nil {
		return nil, wrap("list source", p, err)
	}
	pt.rights = s.rightsTo(fd, "", &st)
	v.parts = []part{pt}
	err = s.listLayers(v, func(c child) {
		entries = append(entries, DirEntry{Name: c.name, Mode: c.mode, Ino: c.shown})
	})
	return entries, wrap("list source", p, err)
}

// openStored is Open for reading, without regard to transforms.
func (s *Stack) openStored(p vpath.Path) (*File, Info, error) {
	s.ns.RLock()
	defer s.ns.RUnlock()
	if p.IsRoot() {
		return nil, Info{}, wrap("open", p, unix.EISDIR)
	}
	v, e, err := s.locate(p)
	if err != nil {
		return nil, Info{}, wrap("open", p, err)
	}
	defer s.dirs.release(v)
	f, i, err := s.openFound(p, e, false)
	return f, i, wrap("open", p, err)
}

// OpenDelta opens the regular file p of the layers above the source for reading. Errors: as
// Open; NotFound if these layers do not have the file.
func (s *Stack) OpenDelta(p vpath.Path) (*os.File, error) {
	f, i, err := s.openStored(p)
	if err != nil {
		return nil, err
	}
	if i.Origin == Source {
		f.Close()
		return nil, wrap("open delta", p, unix.ENOENT)
	}
	return asOS(f.fd, p.String()), nil
}
