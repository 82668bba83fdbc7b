package fusefs

import "golang.org/x/sys/unix"

// legacyOpen and legacyCreat do not exist on arm64.
const (
	legacyOpen  = -1
	legacyCreat = -1
)

var legacyAccesses = map[int]access{
	unix.SYS_RENAMEAT: {name: "rename", dir: true},
}

var legacyNames = map[int]string{
	unix.SYS_FSTATAT: "stat",
}
