//go:build linux

package safefs

import (
	"bytes"
	"encoding/binary"
	"sync"

	"golang.org/x/sys/unix"
)

var direntBuffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// ReadNames calls do for each entry of the directory of the O_PATH descriptor dir, except "." and
// "..", with the type bits (0: unknown) and the inode number of getdents64(2). The bytes of name
// are valid only during the call.
func ReadNames(dir int, do func(name []byte, mode uint32, ino uint64) error) error {
	fd, err := Open(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	buf := direntBuffers.Get().(*[64 << 10]byte)
	defer direntBuffers.Put(buf)
	for {
		n, err := unix.Getdents(fd, buf[:])
		if err == unix.EINTR {
			continue
		}
		if err == unix.ENOENT {
			return nil // it was removed, so it is empty
		}
		if err != nil || n == 0 {
			return err
		}
		if err := eachDirent(buf[:n], do); err != nil {
			return err
		}
	}
}

// direntName is the offset of d_name in struct linux_dirent64.
const direntName = 19

func eachDirent(b []byte, do func(name []byte, mode uint32, ino uint64) error) error {
	for len(b) > direntName {
		ino := binary.NativeEndian.Uint64(b)
		size := int(binary.NativeEndian.Uint16(b[16:]))
		mode := uint32(b[18]) << 12 // DT_* are the type bits of st_mode
		name := b[direntName:size]
		if end := bytes.IndexByte(name, 0); end >= 0 {
			name = name[:end]
		}
		b = b[size:]
		if string(name) == "." || string(name) == ".." {
			continue
		}
		if err := do(name, mode, ino); err != nil {
			return err
		}
	}
	return nil
}
