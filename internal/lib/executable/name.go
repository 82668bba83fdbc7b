package bundle

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Name gives the calling thread our name, which ps(1) and pgrep(1) show of a
// process if it is the first thread: call it from an init function. The kernel
// names a process that is started from a descriptor after its number.
// Source: PR_SET_NAME of prctl(2), which does not fail for a valid pointer.
func Name() {
	name := [...]byte{'a', 'g', 'e', 'n', 't', 'f', 'e', 'n', 's', 'e', 0}
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0)
}
