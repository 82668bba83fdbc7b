package codebase

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// FileInfo describes a file or directory of a codebase.
type FileInfo struct {
	Path       vpath.Path // Text() is its form in the API
	Mode       uint32     // type and permission bits, as st_mode (inode(7))
	SizeBytes  int64      // of a regular file, else 0
	ModifiedAt time.Time
	LinkTarget string // of a symbolic link
}

// IsDir reports whether it is a directory.
func (i FileInfo) IsDir() bool { return i.Mode&unix.S_IFMT == unix.S_IFDIR }

func infoOf(p vpath.Path, st *unix.Stat_t) FileInfo {
	i := FileInfo{Path: p, Mode: st.Mode, ModifiedAt: time.Unix(st.Mtim.Unix())}
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		i.SizeBytes = st.Size
	}
	return i
}

// List describes the entries of the directory p, or with recursive all entries below it, sorted by
// path. It skips entries that are removed meanwhile. Errors: NotFound; Invalid if p is not a
// directory or its path has a symbolic link; Denied; Canceled.
func (c *Codebase) List(ctx context.Context, p vpath.Path, recursive bool) ([]FileInfo, error) {
	var list []FileInfo
	err := c.at(func(files int) error {
		if err := checkListable(files, p); err != nil {
			return err
		}
		w := walker{root: files, recursive: recursive, do: func(e found) error {
			i := infoOf(e.path, &e.st)
			if isLink(&e.st) {
				var err error
				if i.LinkTarget, err = readLinkAt(e.dir, e.path.Base()); err != nil {
					return ignoreVanished(err)
				}
			}
			list = append(list, i)
			return nil
		}}
		return w.walk(ctx, p)
	})
	if err != nil {
		return nil, wrapRead("list", p, err)
	}
	slices.SortFunc(list, func(a, b FileInfo) int { return strings.Compare(string(a.Path), string(b.Path)) })
	return list, nil
}

// checkListable distinguishes causes for which openat2 reports the same error.
func checkListable(files int, p vpath.Path) error {
	st, err := lookup(files, p)
	switch {
	case err != nil:
		return err
	case isLink(st):
		return unix.ELOOP
	case !isDir(st):
		return errdefs.New(errdefs.Invalid, "list %s: not a directory", p)
	}
	return nil
}

// lookup describes p, which may be a symbolic link itself.
func lookup(files int, p vpath.Path) (*unix.Stat_t, error) {
	dir, name, err := openParent(files, p)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	return lstat(dir, name)
}

// openParent opens the parent directory of p; for the root, the root itself.
func openParent(files int, p vpath.Path) (dir int, name string, err error) {
	if name = p.Base(); p.IsRoot() {
		name = "."
	}
	dir, err = safefs.OpenDir(files, p.Dir().Rel(), unix.O_PATH)
	return dir, name, err
}

func lstat(dir int, name string) (*unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, err
	}
	return &st, nil
}

func isDir(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

func isLink(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFLNK }

func readLinkAt(dir int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buf)
	return string(buf[:max(n, 0)]), err
}

// found is an entry that a walker visits, in the open directory dir.
type found struct {
	dir  int
	path vpath.Path
	st   unix.Stat_t
}

// walker calls do for each entry of a directory, with recursive also for all entries below. It has
// one open descriptor at a time, at any depth. An entry whose type changes meanwhile counts as
// removed.
type walker struct {
	root      int
	recursive bool
	// skipClosed skips directories that this process may not list.
	skipClosed bool
	do         func(found) error
}

// walk visits p. It does not enter file systems mounted below. Errors: Canceled; those of the host
// and of do.
func (w walker) walk(ctx context.Context, p vpath.Path) error {
	pending := []vpath.Path{p}
	for len(pending) > 0 {
		if err := ctx.Err(); err != nil {
			return errdefs.New(errdefs.Canceled, "list %s: %w", p, err)
		}
		dir := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		err := walkOne(w.root, dir, func(e found) error {
			if w.recursive && isDir(&e.st) {
				pending = append(pending, e.path)
			}
			return w.do(e)
		})
		if w.skipClosed && errors.Is(err, unix.EACCES) || dir != p && errors.Is(err, unix.EXDEV) {
			continue
		}
		if err != nil {
			return wrap("list", dir, err)
		}
	}
	return nil
}

func walkOne(root int, p vpath.Path, do func(found) error) error {
	fd, err := safefs.OpenDir(root, p.Rel(), unix.O_RDONLY)
	if err != nil {
		return ignoreVanished(err)
	}
	f := os.NewFile(uintptr(fd), p.String())
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return ignoreVanished(err)
	}
	for _, name := range names {
		st, err := lstat(fd, name)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return err
		}
		if err := do(found{dir: fd, path: p.Child(name), st: *st}); err != nil {
			return err
		}
	}
	return nil
}

func ignoreVanished(err error) error {
	for _, gone := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EINVAL} {
		if errors.Is(err, gone) {
			return nil
		}
	}
	return err
}
