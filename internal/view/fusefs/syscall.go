package fusefs

import (
	"bytes"
	"maps"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// call is the system call a thread waits in: its number and arguments. The
// zero call is unknown, as number -1 is.
type call struct {
	known  bool
	number int
	args   [6]uint64
}

// access is what a system call needs of the file that its path names.
type access struct {
	name string
	need func(args *[6]uint64) uint32 // rights to the file: 4 read, 2 write, 1 execute
	dir  bool                         // it changes the directory that contains the path
}

func reads(*[6]uint64) uint32    { return 4 }
func writes(*[6]uint64) uint32   { return 2 }
func executes(*[6]uint64) uint32 { return 1 }

// opens returns the rights that the flags in argument i of an open need.
func opens(i int) func(*[6]uint64) uint32 {
	return func(args *[6]uint64) uint32 {
		flags := args[i]
		if flags&unix.O_PATH != 0 {
			return 0
		}
		need := [4]uint32{4, 2, 6, 6}[flags&unix.O_ACCMODE]
		if flags&unix.O_TRUNC != 0 {
			need |= 2
		}
		return need
	}
}

// asks returns the mode in argument i of an access(2).
func asks(i int) func(*[6]uint64) uint32 {
	return func(args *[6]uint64) uint32 { return uint32(args[i] & 7) }
}

// accesses are the system calls that the kernel can refuse by mode bits. Legacy calls
// differ by architecture. The kernel does not refuse other calls, such as stat(2), by the
// bits of the file.
var accesses = map[int]access{
	unix.SYS_OPENAT:            {name: "open", need: opens(2), dir: true},
	unix.SYS_OPENAT2:           {name: "open", need: reads, dir: true},
	unix.SYS_EXECVE:            {name: "execve", need: executes},
	unix.SYS_EXECVEAT:          {name: "execve", need: executes},
	unix.SYS_FACCESSAT:         {name: "access", need: asks(2)},
	unix.SYS_FACCESSAT2:        {name: "access", need: asks(2)},
	unix.SYS_TRUNCATE:          {name: "truncate", need: writes},
	unix.SYS_CONNECT:           {name: "connect", need: writes},
	unix.SYS_INOTIFY_ADD_WATCH: {name: "inotify_add_watch", need: reads},
	unix.SYS_BIND:              {name: "bind", dir: true},
	unix.SYS_MKDIRAT:           {name: "mkdir", dir: true},
	unix.SYS_MKNODAT:           {name: "mknod", dir: true},
	unix.SYS_UNLINKAT:          {name: "unlink", dir: true},
	unix.SYS_SYMLINKAT:         {name: "symlink", dir: true},
	unix.SYS_LINKAT:            {name: "link", dir: true},
	unix.SYS_RENAMEAT2:         {name: "rename", dir: true},
}

// names are calls that can only fail on a name.
var names = map[int]string{
	unix.SYS_STATX:      "stat",
	unix.SYS_READLINKAT: "readlink",
	unix.SYS_CHDIR:      "chdir",
	unix.SYS_FCHMODAT:   "chmod",
	unix.SYS_FCHOWNAT:   "chown",
	unix.SYS_UTIMENSAT:  "utimensat",
	unix.SYS_STATFS:     "statfs",
	unix.SYS_GETXATTR:   "getxattr",
	unix.SYS_LGETXATTR:  "getxattr",
}

func init() {
	maps.Copy(accesses, legacyAccesses)
	maps.Copy(names, legacyNames)
}

// name returns the name of the operation, "lookup" if the call is unknown.
func (c *call) name() string {
	if a, ok := accesses[c.number]; ok && c.known {
		return a.name
	}
	if s, ok := names[c.number]; ok && c.known {
		return s
	}
	return "lookup"
}

// needs returns the bits that the call needs of a file, or of a directory that it changes.
func (c *call) needs(dir bool) uint32 {
	a := accesses[c.number]
	switch {
	case !c.known:
		return 0
	case !dir && a.need != nil:
		return a.need(&c.args)
	case dir && a.dir && (a.name != "open" || c.creates()):
		return 2
	case dir && a.name == "access":
		return a.need(&c.args)
	}
	return 0
}

// creates reports whether an open may make a file. It returns true if the flags are
// unknown.
func (c *call) creates() bool {
	flags := c.args[2]
	if c.number == legacyOpen {
		flags = c.args[1]
	}
	return c.number == unix.SYS_OPENAT2 || flags&unix.O_CREAT != 0 || flags&unix.O_TMPFILE == unix.O_TMPFILE
}

// makes reports whether the call will make an entry at the name that it looks up. It is
// false for rename and link, which look up two names.
func (c *call) makes() bool {
	a := accesses[c.number]
	switch {
	case !c.known:
		return false
	case a.name == "open":
		return c.number != unix.SYS_OPENAT2 && (c.number == legacyCreat || c.creates())
	}
	return a.name == "mkdir" || a.name == "mknod" || a.name == "symlink" || a.name == "bind"
}

// A caller may not sleep yet when its request arrives: it wakes this process, on another
// processor, before it sleeps. currentCall looks again for this long.
const (
	firstLook = 5 * time.Microsecond // doubles each time
	lastLook  = 100 * time.Millisecond
)

// currentCall reads the system call in which the thread tid waits (proc_pid_syscall(5)).
func currentCall(tid uint32) *call {
	var path [32]byte
	p := append(path[:0], "/proc/"...)
	p = strconv.AppendUint(p, uint64(tid), 10)
	p = append(p, "/syscall"...)
	fd, err := unix.Open(string(p), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &call{}
	}
	defer unix.Close(fd)
	var buf [256]byte
	for wait := firstLook; ; wait *= 2 {
		n, err := unix.Pread(fd, buf[:], 0)
		switch {
		case err != nil:
			return &call{}
		case string(buf[:n]) == "running\n" && wait < lastLook:
			time.Sleep(wait)
		default:
			return parseCall(buf[:n])
		}
	}
}

// parseCall reads "NUMBER 0xARG 0xARG …"; "running" and "-1 …" are unknown.
func parseCall(b []byte) *call {
	c := &call{}
	fields := bytes.Fields(b)
	if len(fields) < 1+len(c.args) {
		return c
	}
	number, err := strconv.Atoi(string(fields[0]))
	if err != nil || number < 0 {
		return c
	}
	for i := range c.args {
		hex, ok := bytes.CutPrefix(fields[1+i], []byte("0x"))
		if !ok {
			return c
		}
		if c.args[i], err = strconv.ParseUint(string(hex), 16, 64); err != nil {
			return c
		}
	}
	c.number, c.known = number, true
	return c
}
