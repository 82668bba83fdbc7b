//go:build linux

package safefs

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// beneathMounts is beneath, but may enter mounts.
const beneathMounts = beneath &^ unix.RESOLVE_NO_XDEV

// OpenRegular opens the regular file at rel beneath dir for reading. It follows no symbolic link,
// and never blocks, because it opens neither FIFOs nor devices. Errors: fs.ErrNotExist,
// fs.ErrPermission; Invalid, with the type, for any other file, and for a symbolic link in the
// path.
func OpenRegular(dir int, rel string) (*os.File, error) {
	handle, err := openHow(dir, rel, unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW, Resolve: beneathMounts})
	if errors.Is(err, unix.ELOOP) {
		return nil, errdefs.New(errdefs.Invalid, "a directory on the way to it is a symbolic link, which is not followed")
	}
	if err != nil {
		return nil, err
	}
	named := os.NewFile(uintptr(handle), rel)
	defer named.Close()
	info, err := named.Stat()
	if err != nil {
		return nil, withoutName(err)
	}
	if !info.Mode().IsRegular() {
		return nil, notRegular(info.Mode())
	}
	fd, err := unix.Open(ProcPath(handle), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), rel), nil
}

// ReadRegular returns the content of the regular file at rel beneath dir. Errors: those of
// OpenRegular; Invalid if it is longer than limit bytes.
func ReadRegular(dir int, rel string, limit int64) ([]byte, error) {
	f, err := OpenRegular(dir, rel)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readBounded(f, limit)
}

// ReadRegularIn is ReadRegular beneath the directory that path names.
func ReadRegularIn(path, rel string, limit int64) ([]byte, error) {
	dir, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(dir)
	return ReadRegular(dir, rel, limit)
}
