package supervise

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// fuseDevice is the number of /dev/fuse (devices.txt, Documentation/admin-guide).
var fuseDevice = unix.Mkdev(10, 229)

// CheckFUSE opens the device as a mount does.
// Errors: Unsupported, with the fix.
func CheckFUSE() error {
	const pass = "in a container, pass the device in (Docker: --device /dev/fuse)"
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	switch {
	case os.IsNotExist(err), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return errdefs.New(errdefs.Unsupported, "/dev/fuse: no such device: `modprobe fuse`; %s", pass)
	case os.IsPermission(err) && os.Geteuid() == 0:
		return errdefs.New(errdefs.Unsupported, "/dev/fuse: not even root may open it here: %s", pass)
	case os.IsPermission(err):
		return errdefs.New(errdefs.Unsupported, "/dev/fuse: only root may open it: `chmod 0666 /dev/fuse`, as udev does (50-udev-default.rules)")
	case err != nil:
		return errdefs.New(errdefs.Unsupported, "/dev/fuse: %w", err)
	}
	defer f.Close()
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		return errdefs.New(errdefs.Unsupported, "/dev/fuse: %w", err)
	}
	if s.Mode&unix.S_IFMT != unix.S_IFCHR || s.Rdev != fuseDevice {
		return errdefs.New(errdefs.Unsupported, "/dev/fuse: it is not the FUSE device: make it anew (mknod -m 0666 /dev/fuse c 10 229); %s", pass)
	}
	return nil
}
