package fuseconn

import (
	"encoding/binary"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Sizes of the headers before a request's and an answer's own fields, and where
// the fields are that are needed here (fuse_in_header and fuse_out_header in
// linux/fuse.h), in bytes.
const (
	headerRoom   = 4096 // any header with any fixed fields
	inHeader     = 40
	uniqueOffset = 8
	outHeader    = 16
)

// buffers are a reader's: a request and its answer at a time. They are mapped,
// so that they neither count as garbage nor as memory until they are used.
type buffers struct {
	mapped  []byte // both
	in, out []byte
	used    int // of either, at most, since they were trimmed
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

// refuse makes b.out the answer st to a request of n bytes that the library
// could not make sense of, and returns its size: 0 where it cannot be answered.
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

// trimAbove is how much of the buffers a reader that waits to become a worker may
// keep, in bytes.
const trimAbove = 64 << 10

// trim gives the memory back if much of it was used.
func (b *buffers) trim() {
	if b.used <= trimAbove {
		return
	}
	b.used = 0
	_ = unix.Madvise(b.mapped, unix.MADV_DONTNEED)
}
