package fusefs

import "golang.org/x/sys/unix"

// legacyOpen is open(2). Its flags are in another argument than those of openat(2).
const legacyOpen = unix.SYS_OPEN

// legacyCreat is creat(2), which has no flags.
const legacyCreat = unix.SYS_CREAT

var legacyAccesses = map[int]access{
	unix.SYS_OPEN:     {name: "open", need: opens(1), dir: true},
	unix.SYS_CREAT:    {name: "open", need: writes, dir: true},
	unix.SYS_ACCESS:   {name: "access", need: asks(1)},
	unix.SYS_MKDIR:    {name: "mkdir", dir: true},
	unix.SYS_MKNOD:    {name: "mknod", dir: true},
	unix.SYS_RMDIR:    {name: "rmdir", dir: true},
	unix.SYS_UNLINK:   {name: "unlink", dir: true},
	unix.SYS_SYMLINK:  {name: "symlink", dir: true},
	unix.SYS_LINK:     {name: "link", dir: true},
	unix.SYS_RENAME:   {name: "rename", dir: true},
	unix.SYS_RENAMEAT: {name: "rename", dir: true},
}

var legacyNames = map[int]string{
	unix.SYS_STAT:       "stat",
	unix.SYS_LSTAT:      "stat",
	unix.SYS_NEWFSTATAT: "stat",
	unix.SYS_READLINK:   "readlink",
	unix.SYS_CHMOD:      "chmod",
	unix.SYS_CHOWN:      "chown",
	unix.SYS_LCHOWN:     "chown",
	unix.SYS_UTIMES:     "utimensat",
	unix.SYS_UTIME:      "utimensat",
}
