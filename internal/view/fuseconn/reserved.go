package fuseconn

import (
	"bytes"
	"encoding/binary"
	"os"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// ReservedName is a name in the root for which the library replies itself (its poll.go),
// with a file that no listing shows. It is for Go programs that use the mount that they
// serve, so only this process finds it. For other processes it is absent and cannot be
// created.
const ReservedName = ".go-fuse-epoll-hack"

// reservedBytes is the name as it is in a request.
var reservedBytes = []byte(ReservedName + "\x00")

// nameOffset is where the name begins after the header of a request, by opcode
// (linux/fuse.h). Other requests in the root need no check.
var nameOffset = map[uint32]int{
	opLookup: 0, 6: 0, 8: 16, 9: 8, 10: 0, 11: 0, 12: 8, 13: 8, 35: 16, 45: 16, // SYMLINK, MKNOD, MKDIR, UNLINK, RMDIR, RENAME, LINK, CREATE, RENAME2
}

const opLookup = 1

// Offsets of fields of fuse_in_header.
const (
	opcodeOffset = 4
	nodeOffset   = 16
	pidOffset    = 32
)

// reserved returns the reply to a request for ReservedName, or OK for any other request.
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
		return fuse.OK // the caller is a thread of this process
	case opcode == opLookup:
		return fuse.ENOENT
	}
	return fuse.Status(unix.EACCES)
}
