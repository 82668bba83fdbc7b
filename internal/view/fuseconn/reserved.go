package fuseconn

import (
	"bytes"
	"encoding/binary"
	"os"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// ReservedName is a name in the root that the library answers for by itself
// (poll.go there), with a file that is in no list. It is for Go programs that
// use what they serve, so only this process finds it. To everybody else it is
// absent and cannot be made.
const ReservedName = ".go-fuse-epoll-hack"

// reservedBytes is the name as a request has it.
var reservedBytes = []byte(ReservedName + "\x00")

// Where a request's own name begins after its header, by opcode
// (linux/fuse.h); other requests in the root bring no name that counts.
var nameOffset = map[uint32]int{
	opLookup: 0, 6: 0, 8: 16, 9: 8, 10: 0, 11: 0, 12: 8, 13: 8, 35: 16, 45: 16, // SYMLINK, MKNOD, MKDIR, UNLINK, RMDIR, RENAME, LINK, CREATE, RENAME2
}

const opLookup = 1

// Where fields of fuse_in_header are.
const (
	opcodeOffset = 4
	nodeOffset   = 16
	pidOffset    = 32
)

// reserved answers a request for ReservedName in the library's place. OK says
// that the request is another.
func reserved(in []byte) fuse.Status {
	if len(in) < inHeader+len(reservedBytes) || binary.NativeEndian.Uint64(in[nodeOffset:]) != fuse.FUSE_ROOT_ID {
		return fuse.OK
	}
	opcode := binary.NativeEndian.Uint32(in[opcodeOffset:])
	offset, named := nameOffset[opcode]
	switch {
	case !named, !bytes.HasPrefix(in[min(inHeader+offset, len(in)):], reservedBytes):
		return fuse.OK
	case unix.Tgkill(os.Getpid(), int(binary.NativeEndian.Uint32(in[pidOffset:])), 0) == nil:
		return fuse.OK // one of our threads asks
	case opcode == opLookup:
		return fuse.ENOENT
	}
	return fuse.Status(unix.EACCES)
}
