package portable

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// scratchDir makes a directory for temporary files, and removes those with the same prefix that
// killed processes of this user have left. Each process holds a lock on its own.
func scratchDir(prefix string) (dir string, remove func() error, err error) {
	sweepScratch(prefix)
	for {
		if dir, err = os.MkdirTemp("", prefix+"*"); err != nil {
			return "", nil, err
		}
		lock, err := os.Open(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue // another process has swept it before it was locked
		}
		var st unix.Stat_t
		if err == nil {
			err = record.Flock(lock, unix.LOCK_EX)
		}
		if err == nil {
			err = unix.Fstat(int(lock.Fd()), &st)
		}
		switch {
		case err != nil:
			return "", nil, errors.Join(err, lock.Close(), os.RemoveAll(dir))
		case st.Nlink == 0:
			lock.Close()
			continue
		}
		return dir, func() error { return errors.Join(os.RemoveAll(dir), lock.Close()) }, nil
	}
}

// sweepScratch removes the directories that no process has locked, as far as it can.
func sweepScratch(prefix string) {
	list, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*")) // the pattern is well-formed
	for _, dir := range list {
		sweepOne(dir)
	}
}

func sweepOne(dir string) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && st.Uid == uint32(os.Geteuid()) && unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil {
		_ = os.RemoveAll(dir)
	}
}
