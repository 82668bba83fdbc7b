//go:build linux

package safefs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// NewFile is a new file that gets its name when it is complete.
type NewFile struct {
	Temporary string // where it is written
	name      string
}

// CreateNew makes an empty file beside name, which only its owner can read. Errors: Exists.
func CreateNew(name string) (*NewFile, error) {
	if _, err := os.Lstat(name); err == nil {
		return nil, newFileExists(name)
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".agentfense-export-*")
	if err != nil {
		return nil, newFileFailed(name, err)
	}
	if err := f.Close(); err != nil {
		return nil, newFileFailed(name, errors.Join(err, os.Remove(f.Name())))
	}
	return &NewFile{f.Name(), name}, nil
}

// Commit makes the file durable and gives it its name in one step. Errors: Exists.
func (n *NewFile) Commit() error {
	f, err := os.OpenFile(n.Temporary, os.O_RDWR, 0)
	if err != nil {
		return newFileFailed(n.name, err)
	}
	err = errors.Join(f.Sync(), f.Close())
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

// Discard removes the incomplete file, if Commit has not given it its name.
func (n *NewFile) Discard() error {
	if err := os.Remove(n.Temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
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
