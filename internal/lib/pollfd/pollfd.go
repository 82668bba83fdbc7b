// Package pollfd waits for one descriptor by poll(2), which the kernel never restarts after a
// signal: it answers EINTR, also to a poll that does not wait (signal(7)). Go's runtime sends its
// threads SIGURG at any time, so every poll must try again, and here it does.
package pollfd

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Wait waits until fd has one of events, or hung up or broke, and returns what it has; 0 if it has
// none when patience is over. A patience of 0 looks and does not wait; a negative one has no end.
func Wait(fd int, events int16, patience time.Duration) (int16, error) {
	for deadline := time.Now().Add(patience); ; {
		left := -1
		if patience >= 0 {
			// Rounded up, so that it does not return early.
			left = int((max(0, time.Until(deadline)) + time.Millisecond - 1).Milliseconds())
		}
		fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
		if _, err := unix.Poll(fds, left); !errors.Is(err, unix.EINTR) {
			return fds[0].Revents, err
		}
	}
}
