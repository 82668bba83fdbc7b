package codebase

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// OpenFile opens the regular file p for reading. The reader sees one version of it, also during an
// upload. Errors: NotFound; Invalid for a directory, a special file, and a symbolic link in the
// path; Denied; Precondition for a linked codebase.
func (c *Codebase) OpenFile(p vpath.Path) (*os.File, FileInfo, error) {
	var file *os.File
	var info FileInfo
	err := c.at(func(files int) (err error) {
		file, info, err = openFile(files, p)
		return err
	})
	return file, info, wrapRead("read", p, err)
}

func openFile(files int, p vpath.Path) (*os.File, FileInfo, error) {
	dir, name, err := openParent(files, p)
	if err != nil {
		return nil, FileInfo{}, err
	}
	defer unix.Close(dir)
	// O_PATH until the type is known: opening a FIFO can block, and opening a device can have
	// effects.
	handle, err := safefs.Open(dir, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, FileInfo{}, err
	}
	defer unix.Close(handle)
	var st unix.Stat_t
	if err := unix.Fstat(handle, &st); err != nil {
		return nil, FileInfo{}, err
	}
	if err := onlyRegular(p, &st); err != nil {
		return nil, FileInfo{}, err
	}
	fd, err := unix.Open(safefs.ProcPath(handle), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, FileInfo{}, err
	}
	return os.NewFile(uintptr(fd), p.String()), infoOf(p, &st), nil
}

func onlyRegular(p vpath.Path, st *unix.Stat_t) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFLNK:
		return unix.ELOOP
	case unix.S_IFDIR:
		return errdefs.New(errdefs.Invalid, "read %s: is a directory", p)
	}
	return errdefs.New(errdefs.Invalid, "read %s: is a special file", p)
}
