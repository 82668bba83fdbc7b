package fusefs_test

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mincore is mincore(2), which x/sys does not have.
func mincore(m, resident []byte) error {
	_, _, no := syscall.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&resident[0])))
	if no != 0 {
		return no
	}
	return nil
}
