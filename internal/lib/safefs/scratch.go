//go:build linux

package safefs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Scratch is a directory for temporary files. It is locked while it is used, so that the next
// process can tell one that a killed process has left.
type Scratch struct {
	Path string
	lock *os.File
}

// MakeScratch makes a directory in os.TempDir, which only the caller can read. Its name begins with
// prefix. MakeScratch also removes such directories that killed processes have left, if the caller
// or one of the users owns them.
func MakeScratch(prefix string, users ...uint32) (*Scratch, error) {
	sweepScratchDirs(prefix, append(users, uint32(os.Geteuid())))
	for {
		path, err := os.MkdirTemp("", prefix+"*")
		if err != nil {
			return nil, err
		}
		lock, err := lockScratch(path)
		if err != nil {
			return nil, errors.Join(err, os.Remove(path))
		}
		if lock != nil {
			return &Scratch{path, lock}, nil
		}
	}
}

// Remove removes the directory with everything below it.
func (s *Scratch) Remove() error { return errors.Join(RemoveTree(s.Path), s.lock.Close()) }

// lockScratch locks a scratch directory. It returns nil if another process uses or has removed it.
func lockScratch(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, IgnoreAbsent(err)
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

// sweepScratchDirs removes scratch directories of users that no process uses. What cannot be
// removed stays: it is among the temporary files.
func sweepScratchDirs(prefix string, users []uint32) {
	entries, _ := os.ReadDir(os.TempDir()) // without it, making a scratch directory fails
	for _, e := range entries {
		path := filepath.Join(os.TempDir(), e.Name())
		var st unix.Stat_t
		if !strings.HasPrefix(e.Name(), prefix) || unix.Lstat(path, &st) != nil || !slices.Contains(users, st.Uid) {
			continue
		}
		if lock, err := lockScratch(path); err == nil && lock != nil {
			_ = RemoveTree(path)
			lock.Close()
		}
	}
}
