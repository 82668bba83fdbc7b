package changes

import (
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"golang.org/x/sys/unix"
)

// SizeDelta is by how much an apply made the source grow: entries other than directories,
// the bytes of regular files, and directories.
type SizeDelta struct{ Files, Bytes, Dirs int64 }

// Add adds an entry of the given mode and size, or with sign -1 subtracts it.
func (g *SizeDelta) Add(mode uint32, size, sign int64) {
	if record.IsDir(mode) {
		g.Dirs += sign
		return
	}
	g.Files += sign
	g.Bytes = safefs.AddSizes(g.Bytes, sign*regularSize(mode, size))
}

func regularSize(mode uint32, size int64) int64 {
	if mode&record.TypeBits != unix.S_IFREG {
		return 0
	}
	return size
}
