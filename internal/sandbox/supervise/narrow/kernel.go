package narrow

import (
	"fmt"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/inner"
)

// beneath keeps every look-up below its handle, but lets it enter mounts: scratch directories, and
// what earlier steps mounted.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// open opens path beneath dir as a handle.
func open(dir int, path string, flags uint64) (int, error) {
	for {
		fd, err := unix.Openat2(dir, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | flags, Resolve: beneath})
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

// clone copies the mounts from fd on.
func clone(fd int, readOnly bool) (int, error) {
	tree, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil || !readOnly {
		return tree, err
	}
	if err := setReadOnly(tree, unix.AT_RECURSIVE); err != nil {
		unix.Close(tree)
		return -1, err
	}
	return tree, nil
}

// setReadOnly makes the mount at fd read-only, with unix.AT_RECURSIVE also those below.
func setReadOnly(fd int, flags uint) error {
	return unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|flags, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}

// newTmpfs makes a tmpfs that is not mounted yet.
func newTmpfs(options [][2]string) (int, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	for _, o := range append(options, [2]string{"source", "tmpfs"}) {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return -1, err
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
}

// userTmpfs makes the tmpfs of a step Empty.
func (w *work) userTmpfs(s inner.Step) (int, error) {
	options := [][2]string{
		{"mode", strconv.FormatUint(uint64(s.Mode), 8)}, {"uid", strconv.Itoa(w.job.UID)}, {"gid", strconv.Itoa(w.job.GID)},
	}
	if s.Size > 0 {
		options = append(options, [2]string{"size", strconv.FormatInt(s.Size, 10)})
	}
	return w.own(newTmpfs(options))
}

// own notes that the file system of a new mount is ours: no program has names in it.
func (w *work) own(tree int, err error) (int, error) {
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(tree, "", &st, unix.AT_EMPTY_PATH); err != nil {
		unix.Close(tree)
		return -1, err
	}
	w.ours[st.Dev] = true
	return tree, nil
}

// file makes the file of a step, and a mount of it.
func (w *work) file(s inner.Step) (int, error) {
	name := path.Join(string(w.job.Dir), contentsDir, fmt.Sprint(w.files))
	w.files++
	err := os.WriteFile(name, []byte(s.Content), 0o600)
	if err == nil {
		err = os.Chown(name, w.job.UID, w.job.GID)
	}
	if err == nil {
		err = os.Chmod(name, os.FileMode(s.Mode&0o777))
	}
	if err != nil {
		return -1, err
	}
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	return clone(fd, !s.Own)
}

// typeOf returns the type bits of what a handle is of.
func typeOf(fd int) (uint32, error) {
	var st unix.Stat_t
	err := unix.Fstatat(fd, "", &st, unix.AT_EMPTY_PATH)
	return st.Mode & unix.S_IFMT, err
}

// isOurs reports whether a handle is of a file system that this process made.
func (w *work) isOurs(fd int) (bool, error) {
	var st unix.Stat_t
	err := unix.Fstatat(fd, "", &st, unix.AT_EMPTY_PATH)
	return w.ours[st.Dev], err
}

// becomeUser accesses files as the sandbox's user from now on.
func (w *work) becomeUser() {
	if os.Geteuid() == 0 && w.job.UID > 0 {
		_ = unix.Setfsgid(w.job.GID)
		_ = unix.Setfsuid(w.job.UID) // and without the rights of root to others' files
	}
}

func (w *work) becomeSelf() {
	if os.Geteuid() == 0 && w.job.UID > 0 {
		_ = unix.Setfsuid(0)
		_ = unix.Setfsgid(os.Getegid())
	}
}
