package layer

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/view/layer/journal"
)

// copyContent copies the first size bytes of l to the empty file dst. It shares blocks
// where the file system can, and keeps holes. It returns the whole content of a source file
// whose content the journal keeps, else nil.
func (s *Stack) copyContent(dst int, l *lower, size int64) (content []byte, err error) {
	if l.unread {
		return nil, nil
	}
	if l.origin == Source && l.st.size <= ContentMax {
		if content, err = safefs.ReadRange(l.fd, 0, l.st.size); err != nil {
			return nil, err
		}
	}
	if l.substitute >= 0 {
		return content, copyData(dst, l.substitute, size)
	}
	cloned, err := s.clone(dst, l, size)
	if cloned || err != nil {
		return content, err
	}
	if content != nil && len(content) <= journal.InlineMax && l.st.blocks*blockBytes >= l.st.size {
		return content, safefs.WriteAll(dst, content[:min(size, int64(len(content)))], 0)
	}
	return content, copyData(dst, l.fd, size)
}

// clone shares the blocks of l with dst if the whole file is wanted and the file system
// can. A failure for the source is remembered: the source is one file system.
func (s *Stack) clone(dst int, l *lower, size int64) (bool, error) {
	if size != l.st.size || size == 0 || l.origin == Source && s.noClone.Load() {
		return false, nil
	}
	err := unix.IoctlFileClone(dst, l.fd)
	if err == nil || !safefs.CannotClone(err) {
		return err == nil, err
	}
	if l.origin == Source && (err == unix.EOPNOTSUPP || err == unix.EXDEV) {
		s.noClone.Store(true)
	}
	return false, nil
}

// copyData copies the first size bytes of src to the empty file dst. It keeps holes.
func copyData(dst, src int, size int64) error {
	if err := unix.Ftruncate(dst, size); err != nil {
		return err
	}
	for off := int64(0); off < size; {
		start, end := nextData(src, off, size)
		if err := copyRange(dst, src, start, end); err != nil {
			return err
		}
		off = end
	}
	return nil
}

// nextData returns the first range of data between off and size, or an empty range at size
// if only a hole is left. On a file system without holes there is one range.
func nextData(fd int, off, size int64) (start, end int64) {
	start, err := unix.Seek(fd, off, unix.SEEK_DATA)
	if err == unix.ENXIO {
		return size, size
	}
	if err != nil {
		return off, size
	}
	end, err = unix.Seek(fd, start, unix.SEEK_HOLE)
	if err != nil || end > size {
		end = size
	}
	return min(start, size), end
}

// copyRange copies the bytes from start to end in the kernel, or through a buffer where the
// kernel cannot copy between the two file systems. The copy ends early if the source became
// shorter; the caller compares the source's identity afterwards.
func copyRange(dst, src int, start, end int64) error {
	for start < end {
		in, out := start, start
		n, err := unix.CopyFileRange(src, &in, dst, &out, int(min(end-start, 1<<30)), 0)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EXDEV, err == unix.EINVAL, err == unix.ENOSYS, err == unix.EOPNOTSUPP, err == nil && n == 0:
			return copyBuffered(dst, src, start, end)
		case err != nil:
			return err
		}
		start += int64(n)
	}
	return nil
}

var copyBuffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

func copyBuffered(dst, src int, start, end int64) error {
	buf := copyBuffers.Get().(*[64 << 10]byte)
	defer copyBuffers.Put(buf)
	for start < end {
		n, err := unix.Pread(src, buf[:min(end-start, int64(len(buf)))], start)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
		for done := 0; done < n; {
			m, err := unix.Pwrite(dst, buf[done:n], start+int64(done))
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return err
			}
			done += m
		}
		start += int64(n)
	}
	return nil
}
