package guest

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Landlock is a second protection in addition to the mounts. A process inside may not read,
// execute or change a file that it reaches other than through its own mounts, nor change a
// file that is mounted read-only. The thread of PID 1 that starts the leaders applies it
// once, so that all commands are in one domain and may still trace each other. See
// docs/adr/0025.

// A landlockAttr is struct landlock_ruleset_attr (linux/landlock.h), in its first version:
// it restricts neither the network nor signals.
type landlockAttr struct{ files uint64 }

// landlockPath is struct landlock_path_beneath_attr, which is packed.
type landlockPath struct {
	allowed uint64
	parent  int32
	_       int32 // the kernel reads 12 bytes
}

const (
	readRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE
	fileRights = readRights | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	// Listing directories is not restricted: it would have to be allowed for the root, and
	// so for everything. Neither is IOCTL_DEV: inside there are only harmless devices and
	// terminals.
	allRights = fileRights | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER
)

// Landlock version 1 refuses every rename between directories, and version 2 does not know
// TRUNCATE.
const (
	landlockWithRefer    = 2
	landlockWithTruncate = 3
)

// LandlockVersion returns the version of the kernel's Landlock, or 0 if there is none or it
// is too old.
func LandlockVersion() int {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 || n < landlockWithRefer {
		return 0
	}
	return int(n)
}

// place is a mount inside.
type place struct {
	path     string
	writable bool
}

// ownProgram is the binary of the leaders. It has no other name inside.
var ownProgram = place{path: "/proc/self/exe"}

// restrictToMounts restricts the calling thread, which stays locked, and all processes that
// it starts to the present mounts. Without Landlock in the kernel it does nothing.
func restrictToMounts() error {
	version := LandlockVersion()
	if version == 0 {
		return nil
	}
	runtime.LockOSThread()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	return restrict(version, placesOf(string(table)))
}

// placesOf reads proc_pid_mountinfo(5). It leaves out a root that is a tmpfs: that is
// bubblewrap's, which contains only mount points.
func placesOf(table string) []place {
	var places []place
	for line := range strings.Lines(table) {
		before, after, _ := strings.Cut(line, " - ")
		fields, super := strings.Fields(before), strings.Fields(after)
		const point, options = 4, 5
		if len(fields) <= options || len(super) < 3 {
			continue
		}
		path := unescapeMount(fields[point])
		if path == "/" && super[0] == "tmpfs" {
			continue
		}
		readOnly := isReadOnly(fields[options]) || isReadOnly(super[2])
		places = append(places, place{path, !readOnly})
	}
	return places
}

func isReadOnly(options string) bool { return options == "ro" || strings.HasPrefix(options, "ro,") }

// unescapeMount undoes the octal escapes of a path in a mount table.
func unescapeMount(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if n, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// restrict restricts the calling thread to places.
func restrict(version int, places []place) error {
	handled := uint64(allRights)
	if version < landlockWithTruncate {
		handled &^= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	attr := landlockAttr{handled}
	ruleset, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return errno
	}
	defer unix.Close(int(ruleset))
	for _, p := range append(places, ownProgram) {
		if err := p.allow(int(ruleset), handled); err != nil {
			return err
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// allow adds a rule for a place. A place that another mount covers is not reachable and
// needs no rule.
func (p place) allow(ruleset int, handled uint64) error {
	fd, err := unix.Open(p.path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Statx_t // without a request to a server
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st); err != nil {
		return err
	}
	rights := uint64(readRights)
	if p.writable {
		rights = allRights
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= fileRights
	}
	const pathBeneath = 1 // LANDLOCK_RULE_PATH_BENEATH
	rule := landlockPath{allowed: rights & handled, parent: int32(fd)}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), pathBeneath, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
