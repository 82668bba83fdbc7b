package present

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// TypeName names the type of a file in one word, as JSON has it.
func TypeName(mode uint32) string {
	if mode&record.TypeBits == unix.S_IFLNK {
		return "symlink"
	}
	return record.TypeName(mode)
}
