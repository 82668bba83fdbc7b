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
	// mountLevels is how deep CheckMount searches for sockets and FIFOs.
	mountLevels = 3
	// maxMountEntries is how many names CheckMount visits, in some tenths of a second.
	maxMountEntries = 100_000
)

// CheckMount refuses the directory source if its top three levels contain a socket or a
// FIFO: even in a read-only mount, programs inside could connect to a socket and write to a
// FIFO, without any network. It skips the concealed directories, which do not show. It
// permits devices, which cannot be opened inside. Errors: Precondition.
func CheckMount(source string, concealed []string) error {
	c := &mountCheck{source: source, concealed: concealed, left: maxMountEntries}
	fd, err := unix.Open(source, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return c.cannotLook(".", err)
	}
	return c.look(fd, ".", 1)
}

// Services returns the paths of the sockets and FIFOs in the top three levels of dir. It
// skips directories that it cannot list, and stops after maxMountEntries names: it is for a
// system directory, which is shown in any case.
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
	left      int       // names that it may still visit
	found     *[]string // collects services instead of refusing them
}

// look checks the directory fd, which is at rel, and closes it.
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
			return errdefs.New(errdefs.Precondition, "mount %q: more than %d names in its top %d levels, too many to search for sockets; mount only the needed directories below it",
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
		return errdefs.New(errdefs.Precondition, "mount %q: contains the socket %q, to which programs inside could connect without a network; remove it, or mount the directories beside it", c.source, rel)
	case e.Type()&fs.ModeNamedPipe != 0:
		return errdefs.New(errdefs.Precondition, "mount %q: contains the FIFO %q, to which programs inside could write without a network; remove it, or mount the directories beside it", c.source, rel)
	case !e.IsDir() || level == mountLevels || slices.Contains(c.concealed, filepath.Join(c.source, rel)):
		return nil
	}
	sub, err := unix.Openat(fd, e.Name(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case err == nil:
		return c.look(sub, rel, level+1)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP): // changed meanwhile
		return nil
	case errors.Is(err, unix.EACCES) && unix.Faccessat(fd, e.Name(), unix.X_OK, unix.AT_EACCESS) != nil:
		return nil // no process inside can enter it either
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

// IsBelowAny reports whether path is one of dirs or is below one. All are clean.
func IsBelowAny(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return safefs.IsBelow(path, dir) })
}
