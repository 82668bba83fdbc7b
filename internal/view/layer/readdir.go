package layer

import (
	"bytes"
	"encoding/binary"
	"sync"

	"golang.org/x/sys/unix"
)

// child is a name of a merged directory and the layer it comes from.
type child struct {
	name  string
	mode  uint32 // type bits
	shown uint64 // the number shown
	layer int
}

// list calls do for each visible name of v.
func (s *Stack) list(v *view, do func(child)) error {
	var seen map[string]struct{} // names decided by a higher layer
	for i, pt := range v.parts {
		if pt.origin == Source {
			return s.listSource(pt, seen, do)
		}
		more := i+1 < len(v.parts)
		names, err := readStored(pt.fd)
		if err != nil {
			return err
		}
		if more && seen == nil && len(names) > 0 {
			seen = make(map[string]struct{}, len(names))
		}
		// Entries before whiteouts: where both are there, the entry counts.
		for _, n := range names {
			if _, ok := seen[n.name]; ok || n.kind != storedEntry {
				continue
			}
			do(child{n.name, n.mode, s.shownIn(pt.fd, n), pt.layer})
		}
		if more {
			for _, n := range names {
				seen[n.name] = struct{}{}
			}
		}
	}
	return nil
}

// shownIn returns the number shown for an entry of the delta directory dir.
func (s *Stack) shownIn(dir int, c storedChild) uint64 {
	if !s.inodes.has(c.ino) {
		return ownNumber(c.ino)
	}
	stored, _ := storedName(c.name)
	st, err := statAt(dir, stored)
	if err != nil {
		return ownNumber(c.ino)
	}
	return s.inodes.shown(&st)
}

func (s *Stack) listSource(pt part, seen map[string]struct{}, do func(child)) error {
	if pt.origin == Source && pt.rights.bits&mayRead == 0 {
		return unix.EACCES
	}
	return readNames(pt.fd, func(name []byte, mode uint32, ino uint64) error {
		if _, ok := seen[string(name)]; ok {
			return nil
		}
		if mode == 0 {
			st, err := statAt(pt.fd, string(name))
			if err == unix.ENOENT {
				return nil
			}
			if err != nil {
				return err
			}
			mode = st.kind()
		}
		if pt.leavesOut(string(name), mode == unix.S_IFDIR) {
			return nil
		}
		do(child{string(name), mode, ino, pt.layer})
		return nil
	})
}

// storedChild is an entry or a whiteout in a directory of a delta.
type storedChild struct {
	name string
	kind storedKind // storedEntry or storedWhiteout
	mode uint32
	ino  uint64
}

// readStored lists the delta directory fd by the names of the view.
func readStored(fd int) ([]storedChild, error) {
	var names []storedChild
	err := readNames(fd, func(raw []byte, mode uint32, ino uint64) error {
		stored := string(raw)
		kind, name, link := parseStored(stored)
		if kind != storedEntry && kind != storedWhiteout {
			return nil
		}
		if link != "" {
			target, err := readlinkAt(fd, link)
			name = nameOfLink(target)
			if err == unix.ENOENT || err == unix.EINVAL || (err == nil && !isNameOf(stored, name)) {
				return nil // nothing that we wrote
			}
			if err != nil {
				return err
			}
		}
		if mode == 0 {
			st, err := statAt(fd, stored)
			if err != nil {
				return err
			}
			mode = st.kind()
		}
		names = append(names, storedChild{name, kind, mode, ino})
		return nil
	})
	return names, err
}

var direntBuffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// readNames calls do for each name in the directory that the O_PATH handle
// dir is of, except "." and "..", with the type bits (0: unknown) and the
// inode number that getdents64(2) gives. The bytes of name are valid during
// the call only.
func readNames(dir int, do func(name []byte, mode uint32, ino uint64) error) error {
	fd, err := openat2(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
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

// direntName is where d_name begins in struct linux_dirent64.
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
