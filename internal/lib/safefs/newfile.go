//go:build linux

package safefs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// NewFile is a new file that gets its name when it is complete.
type NewFile struct {
	Temporary string // where it is written
	name      string
	file      *os.File // has a lock, so that others know that it is being written
}

// ScratchPattern is of temporary files beside the files of CreateNew, as os.CreateTemp takes it.
const ScratchPattern = scratchPrefix + "*"

const scratchPrefix = ".agentfense-export-"

// CreateNew makes an empty file beside name, which only its owner can read. It removes such files
// that killed processes of this user have left there. Errors: Exists.
func CreateNew(name string) (*NewFile, error) {
	if _, err := os.Lstat(name); err == nil {
		return nil, newFileExists(name)
	}
	dir := filepath.Dir(name)
	sweepScratch(dir)
	for {
		f, err := os.CreateTemp(dir, ScratchPattern)
		if err != nil {
			return nil, newFileFailed(name, err)
		}
		n := &NewFile{f.Name(), name, f}
		// Where there are no locks, others cannot take one either, and remove nothing.
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !isGone(f) {
			return n, nil
		}
		if err := n.Discard(); err != nil { // another process is sweeping it away
			return nil, err
		}
	}
}

// isGone reports whether a file has no name any more, or that this cannot be told.
func isGone(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) != nil || st.Nlink == 0
}

// sweepScratch removes what killed processes of this user have left in dir, as far as it can.
func sweepScratch(dir string) {
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	for _, name := range names {
		if strings.HasPrefix(name, scratchPrefix) {
			sweepOne(int(f.Fd()), name)
		}
	}
}

// sweepOne removes a file that no process has locked.
func sweepOne(dir int, name string) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != uint32(os.Geteuid()) {
		return
	}
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil {
		_ = unix.Unlinkat(dir, name, 0)
	}
}

// Commit makes the file durable and gives it its name in one step. Errors: Exists.
func (n *NewFile) Commit() error {
	err := n.file.Sync()
	if err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, n.Temporary, unix.AT_FDCWD, n.name, unix.RENAME_NOREPLACE)
	}
	switch {
	case errors.Is(err, unix.EEXIST):
		return newFileExists(n.name)
	case err != nil:
		return newFileFailed(n.name, err)
	}
	return SyncDir(filepath.Dir(n.name))
}

// Discard removes the incomplete file, if Commit has not given it its name. It must be called after
// Commit, too.
func (n *NewFile) Discard() error {
	err := os.Remove(n.Temporary)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err = errors.Join(err, n.file.Close()); err != nil {
		return newFileFailed(n.name, err)
	}
	return nil
}

func newFileExists(name string) error {
	return errdefs.New(errdefs.Exists, "export to %s: the file exists: remove it, or choose another name", vpath.Quote(name))
}

func newFileFailed(name string, err error) error {
	return errdefs.New(Kind(err), "export to %s: %w", vpath.Quote(name), err)
}
