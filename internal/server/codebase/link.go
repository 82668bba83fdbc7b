package codebase

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// linkFile holds a Link in a codebase's directory.
const linkFile = "link.json"

// Link is the directory of the host of a linked codebase.
type Link struct {
	Path string // absolute, without symbolic links; bytes
	// Dev and Ino identify the directory that was linked.
	Dev, Ino uint64
	// IgnoreFiles hides from its sandboxes what an upload would leave out.
	IgnoreFiles bool
}

// linkJSON is the stored form of a Link; its path is escaped by vpath.Escape.
type linkJSON struct {
	Path        string `json:"path"`
	Dev         uint64 `json:"dev"`
	Ino         uint64 `json:"ino"`
	IgnoreFiles bool   `json:"ignore_files"`
}

// Link creates a codebase from the directory at path, without changing it. The directory may
// contain the state directory, which its sandboxes hide (record.Home.Reserved). Errors: Invalid if
// path is not absolute or not a directory, if it is or is inside the state directory or the store,
// or if it contains a store that is not in the state directory; NotFound; Denied if this process
// cannot read it; those of Create, and with ignoreFiles of Ignores.
func (s *Store) Link(id ID, path string, ignoreFiles bool) (*Codebase, error) {
	l, err := s.resolve(path)
	if err != nil {
		return nil, err
	}
	if l.IgnoreFiles = ignoreFiles; ignoreFiles {
		if _, err := l.ignores(); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(linkJSON{Path: vpath.Escape(l.Path), Dev: l.Dev, Ino: l.Ino, IgnoreFiles: ignoreFiles})
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "link: %w", err)
	}
	err = s.appear(id, func(making string) error { return safefs.WriteDurably(making, linkFile, text) })
	if err != nil {
		return nil, err
	}
	return s.Get(id)
}

// Linked returns the directory of a linked codebase.
func (c *Codebase) Linked() (Link, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == nil {
		return Link{}, false
	}
	return *c.link, true
}

// resolve checks that path can be linked.
func (s *Store) resolve(path string) (Link, error) {
	if !filepath.IsAbs(path) || strings.Contains(path, "\x00") {
		return Link{}, errdefs.New(errdefs.Invalid, "link %s: not an absolute path", vpath.Quote(path))
	}
	l := Link{}
	var err error
	if l.Path, err = filepath.EvalSymlinks(path); err != nil {
		return Link{}, linkError(path, err)
	}
	var st unix.Stat_t
	fd, err := l.open(&st)
	if err != nil {
		return Link{}, linkError(path, err)
	}
	defer unix.Close(fd)
	if err := unix.Faccessat(fd, ".", unix.R_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return Link{}, linkError(path, err)
	}
	l.Dev, l.Ino = st.Dev, st.Ino
	return l, s.checkApart(l, path)
}

// checkApart refuses a directory through which sandboxes would reach the server's own directories.
func (s *Store) checkApart(l Link, path string) error {
	if l.Path == "/" {
		return errdefs.New(errdefs.Invalid, "link /: the whole root cannot be a workspace")
	}
	for _, ours := range []string{s.home, s.dir} {
		r, err := relationOf(l, ours)
		switch {
		case err != nil:
			return linkError(path, err)
		case r == within:
			return errdefs.New(errdefs.Invalid, "link %s: it is, or is inside, a directory of the server", vpath.Quote(path))
		case r == above && ours != s.home && !safefs.IsBelow(ours, s.home):
			return errdefs.New(errdefs.Invalid, "link %s: it contains the server's codebases: move storage.codebase_path out of it, or into the state directory", vpath.Quote(path))
		}
	}
	return nil
}

func (l Link) open(st *unix.Stat_t) (int, error) {
	fd, err := unix.Open(l.Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Fstat(fd, st); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// check refuses another directory at the path. It ignores the device number of a file system
// without a block device (major 0), which changes with each mount.
func (l Link) check() error {
	var st unix.Stat_t
	fd, err := l.open(&st)
	if err != nil {
		return linkError(l.Path, err)
	}
	unix.Close(fd)
	sameDev := st.Dev == l.Dev || unix.Major(st.Dev) == 0 && unix.Major(l.Dev) == 0
	if st.Ino != l.Ino || !sameDev {
		return errdefs.New(errdefs.Precondition, "link %s: this is not the directory that was linked", vpath.Quote(l.Path))
	}
	return nil
}

// relation is the position of a linked directory relative to a directory of the server.
type relation int

const (
	apart  relation = iota
	above           // it contains the other
	within          // it is the other, or inside it
)

// relationOf compares device and inode, so that it recognizes a bind mount.
func relationOf(l Link, ours string) (relation, error) {
	if ours == "" {
		return apart, nil
	}
	ours, err := filepath.EvalSymlinks(ours)
	if errors.Is(err, os.ErrNotExist) {
		return apart, nil
	}
	var own unix.Stat_t
	if err == nil {
		err = unix.Stat(ours, &own)
	}
	if err != nil {
		return apart, err
	}
	if inside, err := hasAncestor(l.Path, own.Dev, own.Ino); inside || err != nil {
		return within, err
	}
	if contains, err := hasAncestor(ours, l.Dev, l.Ino); contains || err != nil {
		return above, err
	}
	return apart, nil
}

// IsApart reports whether a directory of the host, at a path without symbolic links, neither is nor
// contains nor is in the state directory, the directory of the codebases, or one of the other
// paths.
func (s *Store) IsApart(path string, dev, ino uint64, others ...string) (bool, error) {
	l := Link{Path: path, Dev: dev, Ino: ino}
	for _, ours := range append([]string{s.home, s.dir}, others...) {
		if r, err := relationOf(l, ours); r != apart || err != nil {
			return false, err
		}
	}
	return true, nil
}

// hasAncestor reports whether path or a directory above it has this device and inode.
func hasAncestor(path string, dev, ino uint64) (bool, error) {
	for dir := path; ; dir = filepath.Dir(dir) {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			return false, err
		}
		if st.Dev == dev && st.Ino == ino {
			return true, nil
		}
		if dir == filepath.Dir(dir) {
			return false, nil
		}
	}
}

func linkError(path string, err error) error {
	return errdefs.New(safefs.Kind(err), "link %s: %w", vpath.Quote(path), withoutPath(err))
}

// readLink reads the link of a codebase; nil if it is not linked.
func readLink(dir int) (*Link, error) {
	text, err := readSmall(dir, linkFile)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	var j linkJSON
	if err == nil {
		err = json.Unmarshal(text, &j)
	}
	var path string
	if err == nil {
		path, err = vpath.Unescape(j.Path)
	}
	if err != nil || !filepath.IsAbs(path) {
		return nil, errdefs.New(errdefs.Precondition, "codebase: %s is damaged: %w", linkFile, err)
	}
	return &Link{Path: path, Dev: j.Dev, Ino: j.Ino, IgnoreFiles: j.IgnoreFiles}, nil
}
