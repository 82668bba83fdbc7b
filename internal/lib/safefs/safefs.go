//go:build linux

// Package safefs accesses files of the host by directory descriptor and name, never by a joined
// path.
//
// It opens only files beneath a directory that the caller has open, whatever others change
// meanwhile: it follows no symbolic link and enters no mount (openat2(2)). It reads untrusted files
// with a limit and without blocking. It also removes trees of any depth, replaces files durably,
// and classifies errors of the host's file system. It knows nothing about sandboxes and has no
// state.
package safefs

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// beneath keeps every look-up below its handle.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// Open opens path beneath dir; the descriptor is closed on exec. With O_PATH and
// O_NOFOLLOW a symbolic link at the end of path is opened itself. Errors: those
// of openat2(2); ELOOP for a symbolic link, EXDEV for a mount.
func Open(dir int, path string, flags int, mode uint32) (int, error) {
	return openHow(dir, path, unix.OpenHow{Flags: uint64(flags), Mode: uint64(mode), Resolve: beneath})
}

func openHow(dir int, path string, how unix.OpenHow) (int, error) {
	how.Flags |= unix.O_CLOEXEC
	for {
		fd, err := unix.Openat2(dir, path, &how)
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

// pathPiece is how many bytes of a path one openat2 gets, below PATH_MAX.
const pathPiece = 3800

// OpenDir opens the directory at the relative path rel, of any length, beneath
// dir; "." is dir itself. Errors: as Open; ENOTDIR.
func OpenDir(dir int, rel string, flags int) (int, error) {
	at := dir
	for len(rel) > pathPiece {
		cut := strings.LastIndexByte(rel[:pathPiece], '/')
		next, err := Open(at, rel[:cut], unix.O_PATH|unix.O_DIRECTORY, 0)
		if at != dir {
			unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		at, rel = next, rel[cut+1:]
	}
	fd, err := Open(at, rel, flags|unix.O_DIRECTORY, 0)
	if at != dir {
		unix.Close(at)
	}
	return fd, err
}

// ProcPath names an open descriptor for the system calls that want a path.
func ProcPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }
