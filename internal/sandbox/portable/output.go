package portable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// output is a new file that gets its name when it is complete.
type output struct {
	temporary, name string
}

// create makes an empty file beside name, which only its owner can read. Errors: Exists.
func create(name string) (*output, error) {
	if _, err := os.Lstat(name); err == nil {
		return nil, exists(name)
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".agentfense-export-*")
	if err != nil {
		return nil, failed(name, err)
	}
	if err := f.Close(); err != nil {
		return nil, failed(name, errors.Join(err, os.Remove(f.Name())))
	}
	return &output{f.Name(), name}, nil
}

// commit makes the file durable and gives it its name in one step. Errors: Exists.
func (o *output) commit() error {
	f, err := os.OpenFile(o.temporary, os.O_RDWR, 0)
	if err != nil {
		return failed(o.name, err)
	}
	err = errors.Join(f.Sync(), f.Close())
	if err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, o.temporary, unix.AT_FDCWD, o.name, unix.RENAME_NOREPLACE)
	}
	switch {
	case errors.Is(err, unix.EEXIST):
		return exists(o.name)
	case err != nil:
		return failed(o.name, err)
	}
	return safefs.SyncDir(filepath.Dir(o.name))
}

// discard removes the incomplete file, if commit has not given it its name.
func (o *output) discard() error {
	if err := os.Remove(o.temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failed(o.name, err)
	}
	return nil
}

func exists(name string) error {
	return errdefs.New(errdefs.Exists, "export to %s: the file exists: remove it, or choose another name", vpath.Quote(name))
}

// failed wraps an error of the host's file system.
func failed(name string, err error) error {
	return errdefs.New(safefs.Kind(err), "export to %s: %w", vpath.Quote(name), err)
}
