package record

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// The reserve is disk space that is released when the state directory's disk is full. So
// commands that free the disk can write the list of an apply, and records of the audit log
// and of a delta. The reserve consists of files with allocated blocks, because inodes can
// run out too (docs/adr/0019-a-full-disk-and-a-lost-source.md).
const (
	reserveFiles = 16
	reserveBytes = 128 << 10 // of each file
	// reservePart: the reserve takes at most 1/reservePart of a small disk.
	reservePart = 16
)

// reserveDir returns the reserve's directory in the state directory.
func (h *Home) reserveDir() string { return filepath.Join(cmp.Or(h.outer, h.dir), "reserve") }

// keepReserve makes the missing files of the reserve. It ignores errors: on a full disk
// there is no reserve until space is freed.
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
		return // another command uses the room now
	}
	share := int64(st.Blocks) * st.Bsize / (reservePart * reserveFiles)
	size := min(reserveBytes, share/st.Bsize*st.Bsize)
	for i := range reserveFiles {
		if keepFile(int(dir.Fd()), strconv.Itoa(i), size) != nil {
			return
		}
	}
}

// keepFile makes a file with allocated blocks, or none on an error.
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

// ExplainFull says of an error of the state directory that its disk is full, and what frees it.
func ExplainFull(err error) error {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	return errdefs.New(errdefs.Exhausted, "%w: the disk of the state directory is full; "+
		"to free it, apply or discard changes, or remove a sandbox", err)
}

// MakeRoom releases the reserve if the state directory's disk is full, for a step that
// frees space or must be recorded. done makes the reserve again.
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

// isFull reports whether the disk has less free space than the size of the reserve.
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
	return safefs.IsFull(err)
}
