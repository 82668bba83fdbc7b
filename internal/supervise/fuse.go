package supervise

import (
	"os"

	"github.com/agentfense/agentfense/internal/fault"
)

// CheckFUSE opens the device as a mount does.
// Errors: Unsupported, with the fix.
func CheckFUSE() error {
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	switch {
	case os.IsNotExist(err):
		return fault.New(fault.Unsupported, "/dev/fuse: no such device: `modprobe fuse`; in a container, pass the device in")
	case os.IsPermission(err):
		return fault.New(fault.Unsupported, "/dev/fuse: only root may open it: `chmod 0666 /dev/fuse`, as udev does (50-udev-default.rules)")
	case err != nil:
		return fault.New(fault.Unsupported, "/dev/fuse: %w", err)
	}
	return f.Close()
}
