// Package pidfd refers to processes by descriptor (pidfd_open(2)), because a pid may be reused by
// another process.
package pidfd

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/pollfd"
)

// Open returns the process that has the pid now. Errors: ESRCH if there is none.
func Open(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that Go's poller takes it
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// Signal sends a signal. Errors: ESRCH for a process that has ended, and for one whose
// descriptor is closed.
func Signal(process *os.File, sig unix.Signal) error {
	err := error(unix.ESRCH)
	control(process, func(fd int) { err = unix.PidfdSendSignal(fd, sig, nil, 0) })
	return err
}

// Kill kills a process, without waiting for its end. It does nothing if the process has ended or
// its descriptor is closed.
func Kill(process *os.File) error {
	if err := Signal(process, unix.SIGKILL); !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// look is the interval at which Wait checks its context.
const look = 100 * time.Millisecond

// Wait returns when the process has ended, or when its descriptor is closed. Errors: that
// of ctx when it is over; those of poll(2).
func Wait(ctx context.Context, process *os.File) error {
	for {
		patience := look
		if end, ok := ctx.Deadline(); ok {
			patience = max(0, min(patience, time.Until(end)))
		}
		over := ctx.Err()
		if over != nil {
			patience = 0
		}
		has, err := int16(unix.POLLIN), error(nil)
		control(process, func(fd int) { has, err = pollfd.Wait(fd, unix.POLLIN, patience) })
		switch {
		case has != 0:
			return nil
		case err != nil:
			return err
		case over != nil:
			return over
		}
	}
}

// Await is Wait for a file of Open that only the caller uses: nothing else waits for it, now or
// later, or closes it. It occupies no thread, and costs no time while it waits.
func Await(ctx context.Context, process *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = process.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := process.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Read(func(fd uintptr) (over bool) {
		var has int16
		has, failed = pollfd.Wait(int(fd), unix.POLLIN, 0)
		return has != 0 || failed != nil
	})
	switch {
	case failed != nil:
		return failed
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ctx.Err()
	}
	return err
}

// control calls do with the descriptor, without the side effect of Fd, which
// makes a file blocking. It does not call do if the file is closed.
func control(process *os.File, do func(fd int)) {
	if raw, err := process.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { do(int(fd)) })
	}
}
