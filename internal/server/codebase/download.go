package codebase

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// OpenFile opens the regular file p for reading. What is read is one version of
// it, whatever is uploaded meanwhile. Errors: NotFound; Invalid for a directory,
// a special file, and a symbolic link there or on the way; Denied; Precondition
// for a linked codebase.
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
	// Only a handle, until it is known what it is: to open a FIFO or a device
	// can wait for ever or do something.
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
		return errdefs.New(errdefs.Invalid, "read %s: it is a directory", p)
	}
	return errdefs.New(errdefs.Invalid, "read %s: it is a special file", p)
}
