package executable

import (
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SetName sets the name of the calling thread to that of the program. ps(1) and pgrep(1) show the
// name of the first thread, so call it from an init function. The kernel names a process that is
// started from a descriptor after its number. Source: PR_SET_NAME of prctl(2), which does not fail
// for a valid pointer.
func SetName() {
	name := [...]byte{'a', 'g', 'e', 'n', 't', 'f', 'e', 'n', 's', 'e', 0}
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0)
	if arg := os.Args[0]; strings.HasPrefix(arg, "/proc/self/fd/") && len(arg) >= len(name)-1 {
		// PID 1: bubblewrap before 0.9 cannot set argv[0]. ps(1) shows the memory in which the
		// kernel put the arguments; os.Args[0] is replaced first, so that the program no longer
		// refers to it.
		os.Args[0] = string(name[:len(name)-1])
		shown := unsafe.Slice(unsafe.StringData(arg), len(arg))
		clear(shown)
		copy(shown, name[:])
	}
}
