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

// Landlock is a second wall behind the mounts: what a process inside reaches in
// some other way than by its own mounts it may neither read, execute nor change,
// and what is mounted read-only it may not change. It is put up once, by the thread
// of PID 1 that starts the leaders, so that all commands are in one domain and may
// trace each other as before. The reasons stand in docs/adr/0025.

// A landlockAttr is struct landlock_ruleset_attr (linux/landlock.h), as of its
// first version: neither the network nor signals are handled.
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
	// Listing directories is not handled: it would have to be granted for the root,
	// and with it for everything. Neither is IOCTL_DEV: there are no devices inside
	// but harmless ones and terminals.
	allRights = fileRights | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER
)

// Landlock before its second version refuses every rename from one directory to
// another, before its third it knows no TRUNCATE.
const (
	landlockWithRefer    = 2
	landlockWithTruncate = 3
)

// LandlockVersion is that of the kernel's Landlock, 0 where it has none or one that
// is of no use here.
func LandlockVersion() int {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 || n < landlockWithRefer {
		return 0
	}
	return int(n)
}

// A place is a mount inside, and whether it may be written to.
type place struct {
	path     string
	writable bool
}

// ownProgram is what leaders are started from. It has no other name inside.
var ownProgram = place{path: "/proc/self/exe"}

// wallIn restricts the calling thread, which stays locked, and all that it starts
// to what is mounted now. It does nothing where the kernel has no Landlock.
func wallIn() error {
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

// placesOf reads proc_pid_mountinfo(5). A root that is a tmpfs is bubblewrap's,
// which holds nothing but the points where the rest is mounted.
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

// restrict puts the wall up around places.
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

// allow adds what may be done at a place. One that another mount covers is not
// reached, and needs nothing.
func (p place) allow(ruleset int, handled uint64) error {
	fd, err := unix.Open(p.path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Statx_t // of the view no server is asked
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
