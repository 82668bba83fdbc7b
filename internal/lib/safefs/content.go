//go:build linux

package safefs

import (
	"errors"

	"golang.org/x/sys/unix"
)

// WriteAll writes b to fd at the offset at.
func WriteAll(fd int, b []byte, at int64) error {
	for off := 0; off < len(b); {
		n, err := unix.Pwrite(fd, b[off:], at+int64(off))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		off += n
	}
	return nil
}

// ReadRange reads n bytes of fd at the offset off, or fewer at the end of the file.
func ReadRange(fd int, off, n int64) ([]byte, error) {
	buf := make([]byte, n)
	done := 0
	for done < len(buf) {
		m, err := unix.Pread(fd, buf[done:], off+int64(done))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if m == 0 {
			break
		}
		done += m
	}
	return buf[:done], nil
}

// CannotClone reports whether err means that these files cannot share blocks (ioctl_ficlone(2));
// any other error is a failure.
func CannotClone(err error) bool {
	no, _ := errors.AsType[unix.Errno](err)
	switch no {
	case unix.EOPNOTSUPP, unix.EXDEV, unix.EINVAL, unix.ENOTTY, unix.ENOSYS, unix.EPERM, unix.ETXTBSY:
		return true
	}
	return false
}
