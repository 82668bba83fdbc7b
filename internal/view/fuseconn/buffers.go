package fuseconn

import (
	"encoding/binary"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Sizes of the headers of requests and replies, and offsets of the fields that the package
// uses, in bytes (fuse_in_header and fuse_out_header in linux/fuse.h).
const (
	headerRoom   = 4096 // any header with any fixed fields
	inHeader     = 40
	uniqueOffset = 8
	outHeader    = 16
)

// buffers hold one request of a reader and its reply. They are mapped: the garbage
// collector ignores them, and they take no memory until they are used.
type buffers struct {
	mapped  []byte // both
	in, out []byte
	used    int // the largest use of a buffer since the last trim
}

func newBuffers() (*buffers, error) {
	const size = MaxWrite + headerRoom
	m, err := unix.Mmap(-1, 0, 2*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	return &buffers{mapped: m, in: m[:size], out: m[size:]}, nil
}

func (b *buffers) free() { _ = unix.Munmap(b.mapped) }

// refuse puts into b.out the reply st to a request of n bytes that the library could not
// decode. It returns the size of the reply, 0 if no reply is possible.
func (b *buffers) refuse(n int, st fuse.Status) int {
	if n < inHeader {
		return 0
	}
	clear(b.out[:outHeader])
	binary.NativeEndian.PutUint32(b.out, outHeader)
	binary.NativeEndian.PutUint32(b.out[4:], uint32(-int32(st)))
	copy(b.out[uniqueOffset:outHeader], b.in[uniqueOffset:])
	return outHeader
}

// trimAbove is how much buffer memory a reader may keep while it waits to become a worker,
// in bytes.
const trimAbove = 64 << 10

// trim gives the memory back if much of it was used.
func (b *buffers) trim() {
	if b.used <= trimAbove {
		return
	}
	b.used = 0
	_ = unix.Madvise(b.mapped, unix.MADV_DONTNEED)
}
