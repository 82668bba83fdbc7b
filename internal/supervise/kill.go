package supervise

import (
	"cmp"
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
)

// Kill ends a supervisor that does not listen, and with it every command and
// the view; it returns when the process is gone. ClearRemains removes the rest.
// The process is the one that the kernel says made the control socket, so
// nobody else's pid can be meant. Errors: NotFound when none is alive, Denied.
func (c *Client) Kill(ctx context.Context) error {
	cn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer cn.Close()
	process, err := cn.peer()
	if err != nil {
		return fault.New(fault.Unavailable, "kill the supervisor: %w", err)
	}
	defer process.Close()
	if err := unix.PidfdSendSignal(int(process.Fd()), unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return fault.New(fault.Denied, "kill the supervisor: %w", err)
	}
	return awaitExit(ctx, process)
}

// peer returns the process at the other end, as a pidfd.
func (c conn) peer() (*os.File, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	control := raw.Control(func(s uintptr) {
		fd, err = unix.GetsockoptInt(int(s), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
		if err != nil { // before Linux 6.5
			fd, err = peerByPid(int(s))
		}
	})
	if control != nil || err != nil {
		return nil, cmp.Or(control, err)
	}
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// peerByPid goes by the number. The connection outlives no peer, so a process
// that is there after the connection was seen alive is not another.
func peerByPid(socket int) (int, error) {
	cred, err := unix.GetsockoptUcred(socket, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return -1, err
	}
	fd, err := unix.PidfdOpen(int(cred.Pid), 0)
	if err != nil {
		return -1, err
	}
	hung := []unix.PollFd{{Fd: int32(socket), Events: unix.POLLRDHUP}}
	if n, err := unix.Poll(hung, 0); err != nil || n > 0 {
		unix.Close(fd)
		return -1, cmp.Or[error](err, unix.ESRCH)
	}
	return fd, nil
}

// awaitTick is how often awaitExit looks whether its caller still waits.
const awaitTick = 100 * time.Millisecond

func awaitExit(ctx context.Context, process *os.File) error {
	for {
		ready := []unix.PollFd{{Fd: int32(process.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(ready, int(awaitTick.Milliseconds()))
		switch {
		case n > 0:
			return nil
		case err != nil && err != unix.EINTR:
			return fault.New(fault.Internal, "wait for the supervisor: %w", err)
		case ctx.Err() != nil:
			return fault.New(fault.Canceled, "wait for the supervisor: %w", ctx.Err())
		}
	}
}
