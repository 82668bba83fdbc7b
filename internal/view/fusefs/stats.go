package fusefs

import "sync/atomic"

// op is a counted kind of request or notification.
type op uint8

const (
	opLookup op = iota
	opGetAttr
	opSetAttr
	opReadlink
	opSymlink
	opMknod
	opMkdir
	opUnlink
	opRmdir
	opRename
	opLink
	opOpen
	opRead
	opWrite
	opStatFs
	opFlush
	opFsync
	opOpenDir
	opReadDir
	opReadDirPlus
	opCreate
	opTmpfile
	opFallocate
	opLseek
	opCopyFileRange
	opStore
	opWriteout
	opCount
)

var opNames = [opCount]string{
	"lookup", "getattr", "setattr", "readlink", "symlink", "mknod", "mkdir", "unlink", "rmdir", "rename", "link",
	"open", "read", "write", "statfs", "flush", "fsync", "opendir", "readdir", "readdirplus", "create", "tmpfile",
	"fallocate", "lseek", "copy_file_range", "store", "writeout",
}

type stats [opCount]atomic.Uint64

func (s *stats) count(o op) { s[o].Add(1) }

// Stats returns how many requests of each kind came since the mount. "store" is how many
// contents the prefetcher stored, and "writeout" how often the writeback of a file was
// started. FORGET is not counted.
func (fs *FS) Stats() map[string]uint64 {
	m := make(map[string]uint64, opCount)
	for o := range opNames {
		if n := fs.stats[o].Load(); n > 0 {
			m[opNames[o]] = n
		}
	}
	return m
}
