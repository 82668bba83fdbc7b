package record

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// The reserve is room on the state directory's disk that is given up when the
// disk is full, so that what frees the disk can write what it must: the list of
// an apply, records of the audit log and of a delta. It is files of allocated
// blocks, because inodes run out too (docs/adr/0019-a-full-disk.md).
const (
	reserveFiles = 16
	reserveBytes = 128 << 10 // of each file
	// reservePart is the part of a small disk that the reserve takes at most.
	reservePart = 16
)

// reserveDir is the reserve's directory in the state directory.
func (h *Home) reserveDir() string { return filepath.Join(cmp.Or(h.outer, h.dir), "reserve") }

// keepReserve makes what is missing of the reserve. It does what it can: a disk
// that is full has none until something is freed.
func (h *Home) keepReserve() {
	last := filepath.Join(h.reserveDir(), strconv.Itoa(reserveFiles-1))
	if _, err := os.Lstat(last); err == nil {
		return
	}
	if err := os.Mkdir(h.reserveDir(), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return
	}
	dir, err := os.Open(h.reserveDir())
	if err != nil {
		return
	}
	defer dir.Close()
	var st unix.Statfs_t
	if Flock(dir, unix.LOCK_EX|unix.LOCK_NB) != nil || unix.Fstatfs(int(dir.Fd()), &st) != nil {
		return // somebody needs the room just now
	}
	share := int64(st.Blocks) * st.Bsize / (reservePart * reserveFiles)
	size := min(reserveBytes, share/st.Bsize*st.Bsize)
	for i := range reserveFiles {
		if keepFile(int(dir.Fd()), strconv.Itoa(i), size) != nil {
			return
		}
	}
}

// keepFile makes a file of allocated blocks, whole or not at all.
func keepFile(dir int, name string, size int64) error {
	fd, err := safefs.Open(dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o600)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Fallocate(fd, 0, 0, max(size, 1)); err != nil {
		return errors.Join(err, unix.Unlinkat(dir, name, 0))
	}
	return nil
}

// MakeRoom gives the reserve up if the state directory's disk is full, for a
// step that frees the disk, or that has to be recorded, until done is called.
// done makes the reserve again of what was freed.
func (h *Home) MakeRoom() (done func()) {
	dir, err := os.Open(h.reserveDir())
	if err != nil {
		return h.keepReserve
	}
	if Flock(dir, unix.LOCK_SH) == nil && h.isFull() {
		for i := range reserveFiles {
			_ = unix.Unlinkat(int(dir.Fd()), strconv.Itoa(i), 0)
		}
	}
	return func() {
		dir.Close()
		h.keepReserve()
	}
}

// isFull reports whether the disk has less room than the reserve is large.
func (h *Home) isFull() bool {
	var st unix.Statfs_t
	if unix.Statfs(h.dir, &st) == nil && st.Files > 0 && st.Ffree < reserveFiles {
		return true
	}
	fd, err := unix.Open(h.dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err == nil {
		err = unix.Fallocate(fd, 0, 0, reserveFiles*reserveBytes)
		unix.Close(fd)
	}
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}
