package gitrun

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// scratchPrefix begins the names of scratch directories.
const scratchPrefix = "agentfense-clean-"

// scratchDir is a directory for temporary repositories. It is locked while it is used, so that the
// next process can tell one that a killed process has left.
type scratchDir struct {
	path string
	lock *os.File
}

// makeScratch makes a scratch directory, and removes those that killed processes of the caller, or
// for the owner, have left.
func makeScratch(owner *syscall.Credential) (*scratchDir, error) {
	sweepScratch(os.TempDir(), owner)
	for {
		path, err := os.MkdirTemp("", scratchPrefix)
		if err != nil {
			return nil, err
		}
		lock, err := lockScratch(path)
		if err != nil {
			return nil, errors.Join(err, os.Remove(path))
		}
		if lock != nil {
			return &scratchDir{path, lock}, nil
		}
	}
}

// lockScratch locks a scratch directory. It returns nil if another process uses or has removed it.
func lockScratch(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, safefs.IgnoreAbsent(err)
	}
	dir := os.NewFile(uintptr(fd), path)
	var is, now unix.Stat_t
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = errors.Join(unix.Fstat(fd, &is), unix.Lstat(path, &now))
	}
	if err == nil && is.Ino == now.Ino && is.Dev == now.Dev {
		return dir, nil
	}
	dir.Close()
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return nil, err
}

// sweepScratch removes scratch directories that nobody uses. What cannot be removed stays: it is in
// the directory for temporary files.
func sweepScratch(temporary string, owner *syscall.Credential) {
	left, err := filepath.Glob(filepath.Join(temporary, scratchPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range left {
		var st unix.Stat_t
		if unix.Lstat(path, &st) != nil || st.Uid != uint32(os.Geteuid()) && (owner == nil || st.Uid != owner.Uid) {
			continue
		}
		if lock, err := lockScratch(path); err == nil && lock != nil {
			_ = safefs.RemoveTree(path)
			lock.Close()
		}
	}
}

func (d *scratchDir) remove() error {
	return errors.Join(safefs.RemoveTree(d.path), d.lock.Close())
}
