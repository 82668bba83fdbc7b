package isolate

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

const (
	// mountLevels is how deep in a mount sockets and FIFOs are looked for.
	mountLevels = 3
	// maxMountEntries is how many names are looked at for it, some tenths of a second.
	maxMountEntries = 100_000
)

// CheckMount refuses the directory source if a socket or a FIFO lies in its top
// three levels: a read-only mount lets programs inside connect to the one and
// write to the other, without any network. Directories of concealed are left
// out, since they do not show. Devices are let through: they cannot be opened
// inside. Errors: Precondition.
func CheckMount(source string, concealed []string) error {
	c := &mountCheck{source: source, concealed: concealed, left: maxMountEntries}
	fd, err := unix.Open(source, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return c.cannotLook(".", err)
	}
	return c.look(fd, ".", 1)
}

// Services returns the sockets and FIFOs in the top three levels of dir, as
// paths. What cannot be listed is left out, and so is all that lies behind too
// many names: it is for a directory of the system, which is shown whatever it holds.
func Services(dir string) []string {
	var found []string
	c := &mountCheck{source: dir, left: maxMountEntries, found: &found}
	if fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		_ = c.look(fd, ".", 1) // the same
	}
	return found
}

// mountCheck is one walk through a mount's directories.
type mountCheck struct {
	source    string
	concealed []string
	left      int       // names that may still be looked at
	found     *[]string // gathers services, instead of refusing them
}

// look checks the directory fd at rel, which it closes.
func (c *mountCheck) look(fd int, rel string, level int) error {
	dir := os.NewFile(uintptr(fd), safefs.ProcPath(fd))
	defer dir.Close()
	for {
		entries, err := dir.ReadDir(512)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return c.cannotLook(rel, err)
		}
		if c.left -= len(entries); c.left < 0 {
			return errdefs.New(errdefs.Precondition, "mount %q: more than %d names in its top %d levels, too many to look for sockets among; mount the directories below it that are needed",
				c.source, maxMountEntries, mountLevels)
		}
		for _, e := range entries {
			if err := c.entry(fd, filepath.Join(rel, e.Name()), e, level); err != nil {
				return err
			}
		}
	}
}

// entry checks one name in the directory fd.
func (c *mountCheck) entry(fd int, rel string, e fs.DirEntry, level int) error {
	switch {
	case e.Type()&(fs.ModeSocket|fs.ModeNamedPipe) != 0 && c.found != nil:
		*c.found = append(*c.found, filepath.Join(c.source, rel))
		return nil
	case e.Type()&fs.ModeSocket != 0:
		return errdefs.New(errdefs.Precondition, "mount %q: holds the socket %q, which programs inside could connect to whatever the network; remove it, or mount the directories beside it", c.source, rel)
	case e.Type()&fs.ModeNamedPipe != 0:
		return errdefs.New(errdefs.Precondition, "mount %q: holds the FIFO %q, which programs inside could write to whatever the network; remove it, or mount the directories beside it", c.source, rel)
	case !e.IsDir() || level == mountLevels || slices.Contains(c.concealed, filepath.Join(c.source, rel)):
		return nil
	}
	sub, err := unix.Openat(fd, e.Name(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case err == nil:
		return c.look(sub, rel, level+1)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP): // it changed meanwhile
		return nil
	case errors.Is(err, unix.EACCES) && unix.Faccessat(fd, e.Name(), unix.X_OK, unix.AT_EACCESS) != nil:
		return nil // nobody inside enters it either
	}
	return c.cannotLook(rel, err)
}

func (c *mountCheck) cannotLook(rel string, err error) error {
	if c.found != nil {
		return nil
	}
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		err = p.Err
	}
	return errdefs.New(errdefs.Precondition, "mount %q: directory %q cannot be listed, so it may hold sockets: %w; mount the directories beside it", c.source, rel, err)
}

// IsBelowAny reports whether path is one of dirs or lies below one. All are clean.
func IsBelowAny(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return safefs.IsBelow(path, dir) })
}
