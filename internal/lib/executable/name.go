package executable

import (
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SetName gives the calling thread our name, which ps(1) and pgrep(1) show of a
// process if it is the first thread: call it from an init function. The kernel
// names a process that is started from a descriptor after its number.
// Source: PR_SET_NAME of prctl(2), which does not fail for a valid pointer.
func SetName() {
	name := [...]byte{'a', 'g', 'e', 'n', 't', 'f', 'e', 'n', 's', 'e', 0}
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0)
	if arg := os.Args[0]; strings.HasPrefix(arg, "/proc/self/fd/") && len(arg) >= len(name)-1 {
		// PID 1: bubblewrap before 0.9 cannot give it another argv[0]. ps(1) shows the
		// memory that the kernel put the arguments in; os.Args[0] is changed first, so
		// that nothing of ours refers to it any more.
		os.Args[0] = string(name[:len(name)-1])
		shown := unsafe.Slice(unsafe.StringData(arg), len(arg))
		clear(shown)
		copy(shown, name[:])
	}
}
