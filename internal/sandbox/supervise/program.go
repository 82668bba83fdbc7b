package supervise

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// programsDir holds, in the state directory, what plays PID 1 and the leaders
// inside sandboxes: a copy of this program that may be executed and not read.
// A process whose program its user may not read is undumpable from its first
// instruction on (would_dump in fs/exec.c), so that nothing else inside, which
// runs as the same user, can trace it before it protects itself.
const programsDir = "programs"

// unreadable is the mode of such a copy. Inside, its owner is another user, or
// the same without a capability, on a mount that is read-only.
const unreadable = 0o111

// unusedAfter is how long a copy stays that no sandbox was started from. One
// that is in use goes on to work without its name.
const unusedAfter = 24 * time.Hour

// programInside returns the path of the copy of this program, which it makes
// unless it is there. Errors: Unsupported, Exhausted, Internal.
func (s *supervisor) programInside() (string, error) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", errdefs.New(errdefs.Internal, "open our own program: %w", err)
	}
	defer self.Close()
	dir := filepath.Join(s.home.Dir(), programsDir)
	path, made, err := copyProgram(self, dir)
	if err != nil {
		return "", safefs.OwnError("copy our own program into the state directory", err)
	}
	if made {
		if err := removeUnused(dir, time.Now().Add(-unusedAfter)); err != nil {
			s.log.Warn("copies of earlier programs stay", "err", err)
		}
	}
	return path, canExecute(dir)
}

// canExecute refuses a directory from which nothing can be started.
func canExecute(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return errdefs.New(errdefs.Internal, "state directory: %w", err)
	}
	if st.Flags&unix.ST_NOEXEC != 0 {
		return errdefs.New(errdefs.Unsupported, "state directory %s: on a file system that is mounted noexec, and a sandbox's first process is started from it; set AGENTFENSE_HOME to a directory elsewhere", filepath.Dir(dir))
	}
	return nil
}

// copyProgram makes the copy of self in dir, or finds it there. It is named by
// what tells self from any other file, or itself after a change, and costs no
// reading of it.
func copyProgram(self *os.File, dir string) (path string, made bool, err error) {
	info, err := self.Stat()
	if err != nil {
		return "", false, err
	}
	st := info.Sys().(*syscall.Stat_t)
	identity := sha256.Sum256(fmt.Appendf(nil, "%d %d %d %v %v", st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim))
	path = filepath.Join(dir, fmt.Sprintf("%x", identity[:16]))
	if isCopy(path, info.Size()) {
		// Only removeUnused goes by the time.
		_ = os.Chtimes(path, time.Time{}, time.Now())
		return path, false, nil
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", false, err
	}
	return path, true, makeCopy(self, info.Size(), path)
}

// isCopy reports whether path is what makeCopy has made, and nothing else that
// somebody left there.
func isCopy(path string, size int64) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode() == unreadable && info.Size() == size && info.Sys().(*syscall.Stat_t).Uid == uint32(os.Geteuid())
}

// makeCopy copies the first size bytes of self to path. Whoever finds path finds
// it whole, after a crash of the machine too.
func makeCopy(self *os.File, size int64, path string) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "new-")
	if err != nil {
		return err
	}
	defer func() {
		f.Close()
		_ = os.Remove(f.Name()) // gone already where all went well
	}()
	if _, err := self.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.CopyN(f, self, size); err != nil {
		return err
	}
	if err := errors.Join(f.Chmod(unreadable), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return safefs.SyncDir(dir)
}

// removeUnused removes the copies of other programs from which nothing was
// started since, and what a killed makeCopy has left.
func removeUnused(dir string, since time.Time) error {
	entries, err := os.ReadDir(dir)
	errs := []error{err}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.ModTime().Before(since) {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}
