package supervise

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// terminals is a devpts instance of the sandbox's own. Its masters stay out
// here; the isolator binds it on /dev/pts inside, so that the slave a command
// gets is opened inside by its name and no descriptor has to be passed in.
type terminals struct {
	dir string
}

// maxTerminals is how many a sandbox may have, which are taken from those of the
// whole host (kernel.pty.max, 4096): it could leave none to others.
const maxTerminals = 256

// mountTerminals mounts a devpts instance on dir, in this process's mount
// namespace. Its slaves belong to owner, or without one to whoever opens the
// master (devpts.rst, Documentation/filesystems).
func mountTerminals(dir string, owner *ids) (*terminals, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return nil, errdefs.New(errdefs.Internal, "terminals: %w", err)
	}
	options := fmt.Sprintf("newinstance,ptmxmode=0666,mode=0620,max=%d", maxTerminals)
	if owner != nil {
		options += fmt.Sprintf(",uid=%d,gid=%d", owner.uid, owner.gid)
	}
	err := unix.Mount("devpts", dir, "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, options)
	if errors.Is(err, unix.EINVAL) && owner != nil {
		return nil, errdefs.New(errdefs.Unsupported, "terminals: user %d of the sandbox does not exist in this container: give the container all users, or run agentfense as an ordinary user", owner.uid)
	}
	if err != nil {
		return nil, errdefs.New(errdefs.Unsupported, "terminals: mount devpts: %w", err)
	}
	return &terminals{dir: dir}, nil
}

// ids are a user and a group on the host.
type ids struct{ uid, gid int }

// open makes a terminal and returns its master and the slave's number.
func (t *terminals) open(rows, columns uint16) (*os.File, int, error) {
	master, err := os.OpenFile(filepath.Join(t.dir, "ptmx"), os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, errdefs.New(errdefs.Exhausted, "terminal: %w", err)
	}
	number, err := setUpTerminal(master, rows, columns)
	if err != nil {
		master.Close()
		return nil, 0, errdefs.New(errdefs.Internal, "terminal: %w", err)
	}
	return master, number, nil
}

func setUpTerminal(master *os.File, rows, columns uint16) (int, error) {
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return 0, err
	}
	if rows > 0 && columns > 0 {
		size := unix.Winsize{Row: rows, Col: columns}
		if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &size); err != nil {
			return 0, err
		}
	}
	return unix.IoctlGetInt(fd, unix.TIOCGPTN)
}
