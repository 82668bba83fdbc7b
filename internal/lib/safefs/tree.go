//go:build linux

package safefs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxDepth is the depth to which RemoveTree recurses, with one descriptor for each level. A program
// inside can create a tree of any depth.
const maxDepth = 200

// RemoveTree deletes the directory path with everything below it, with any modes and depth that a
// program inside created. It follows no symbolic link, and succeeds if path does not exist.
func RemoveTree(path string) error {
	parent, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer parent.Close()
	if err := RemoveTreeAt(int(parent.Fd()), filepath.Base(path)); err != nil {
		return &os.PathError{Op: "unlink", Path: path, Err: err}
	}
	return nil
}

// RemoveTreeAt is RemoveTree for the directory name in dir. Names in dir that begin with name and a
// dot must be unused.
func RemoveTreeAt(dir int, name string) error {
	t := treeRemover{attic: dir, name: name}
	if err := t.remove(t.attic, t.name, 0); err != nil {
		return err
	}
	for n := 1; n <= t.moved; n++ { // which may move more
		if err := t.remove(t.attic, t.lifted(n), 0); err != nil {
			return err
		}
	}
	return nil
}

// treeRemover moves directories that are too deep to the top, beside the tree, and counts them.
type treeRemover struct {
	attic int
	name  string
	moved int
}

func (t *treeRemover) lifted(n int) string { return fmt.Sprintf("%s.%d", t.name, n) }

func (t *treeRemover) remove(dir int, name string, depth int) error {
	err := unix.Unlinkat(dir, name, 0)
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return IgnoreAbsent(err)
	}
	if depth == maxDepth {
		// Moving a directory needs write permission for it.
		if err := OpenUp(dir, name); err != nil {
			return IgnoreAbsent(err)
		}
		t.moved++
		return unix.Renameat(dir, name, t.attic, t.lifted(t.moved))
	}
	if err := t.empty(dir, name, depth); err != nil {
		return IgnoreAbsent(err)
	}
	return IgnoreAbsent(unix.Unlinkat(dir, name, unix.AT_REMOVEDIR))
}

// empty removes what is in the directory name of dir.
func (t *treeRemover) empty(dir int, name string, depth int) error {
	fd, err := OpenListable(dir, name)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	entries, err := f.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := t.remove(fd, e, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// OpenListable opens the directory name of dir, which belongs to this user, after restoring the
// owner's permissions that a chmod inside removed.
func OpenListable(dir int, name string) (int, error) {
	if err := OpenUp(dir, name); err != nil {
		return -1, err
	}
	return unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// OpenUp restores the owner's permissions of the directory name of dir that a chmod inside removed.
// It does not change another file.
func OpenUp(dir int, name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o700 == 0o700 {
		return nil
	}
	fd, err := OpenDir(dir, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Chmod(ProcPath(fd), 0o700)
}

// IgnoreAbsent returns err, but nil for ENOENT.
func IgnoreAbsent(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
