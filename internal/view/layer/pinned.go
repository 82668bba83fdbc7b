package layer

import (
	"errors"

	"golang.org/x/sys/unix"
)

// errPinned says that a file of a lower layer has to be copied up before its
// name goes, because as many as may be are held by a handle.
var errPinned = errors.New("too many removed files are held open")

const (
	// maxPins bounds the handles on files that were removed from the view and
	// are still in use; a quarter of what the process may have does too.
	maxPins = 4096
	// maxPinnedCopy is the largest file that is copied up for want of a handle,
	// in bytes: what takes well below a second.
	maxPinnedCopy = 16 << 20
)

func pinLimit() int64 {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return 64
	}
	return int64(max(8, min(lim.Cur/4, maxPins)))
}

// hold makes fd the handle of o. Beyond the bound it closes fd and answers
// errPinned, and ENFILE for a file that is too large to be copied up instead.
func (o *Orphan) hold(fd int, st stat) error {
	s := o.s
	if s.pins.Add(1) <= s.maxPins {
		o.pinned, o.st = fd, st
		return nil
	}
	s.pins.Add(-1)
	unix.Close(fd)
	if st.size > maxPinnedCopy {
		return unix.ENFILE
	}
	return errPinned
}

// letGo closes the handle of o, if it has one.
func (o *Orphan) letGo() {
	if o.pinned < 0 {
		return
	}
	unix.Close(o.pinned)
	o.pinned = -1
	o.s.pins.Add(-1)
}
