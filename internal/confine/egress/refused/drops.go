package refused

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// meminfo is the answer to SO_MEMINFO, numbers that linux/sock_diag.h lists. The last one is how
// many packets a socket had no room for.
type meminfo [9]uint32

// drops is how many packets a socket had no room for. It wraps.
func drops(fd int) (uint32, error) {
	var info meminfo
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, errno
	}
	return info[len(info)-1], nil
}
