package layer

import (
	"errors"

	"golang.org/x/sys/unix"
)

// errPinned means that a file of a lower layer must be copied up before its name is
// removed, because maxPins is reached.
var errPinned = errors.New("too many removed files are held open")

const (
	// maxPins is the maximum number of handles on files that were removed from the view and
	// are still in use. A quarter of the process's descriptor limit is the other bound.
	maxPins = 4096
	// maxPinnedCopy is the largest file that is copied up when no handle is available, in
	// bytes. Such a copy takes well below a second.
	maxPinnedCopy = 16 << 20
)

func pinLimit(share int) int64 {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return 64
	}
	return int64(max(8, min(lim.Cur/4, maxPins)/uint64(max(share, 1))))
}

// hold makes fd the handle of o. Beyond maxPins it closes fd and returns errPinned, or
// ENFILE for a file larger than maxPinnedCopy.
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

// unpin closes the handle of o, if it has one.
func (o *Orphan) unpin() {
	if o.pinned < 0 {
		return
	}
	unix.Close(o.pinned)
	o.pinned = -1
	o.s.pins.Add(-1)
}
