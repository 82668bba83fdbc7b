package guest

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/pollfd"
)

// Pair returns the two ends of a new guest socket: the supervisor's, for
// NewConn, and PID 1's.
func Pair() (supervisor, inside *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, errdefs.New(errdefs.Exhausted, "guest socket: %w", err)
	}
	supervisor, inside = os.NewFile(uintptr(fds[0]), "guest"), os.NewFile(uintptr(fds[1]), "guest-inside")
	// Messages sent before this option is set would have no credentials.
	if err := unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		return nil, nil, errdefs.New(errdefs.Internal, "guest socket: %w", errors.Join(err, supervisor.Close(), inside.Close()))
	}
	return supervisor, inside, nil
}

// sendTimeout limits a send to a peer that does not read. A peer that works reads at once.
const sendTimeout = 10 * time.Second

// link is the supervisor's end of a socket. It may be read by one goroutine
// and written by others.
type link struct{ file *os.File }

// newLink takes ownership of the supervisor's end of a Pair and makes it pollable.
func newLink(file *os.File) (link, error) {
	defer file.Close()
	fd := -1
	var err error
	control(file, func(old int) { fd, err = unix.FcntlInt(uintptr(old), unix.F_DUPFD_CLOEXEC, 0) })
	if err == nil && fd >= 0 {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil || fd < 0 {
		return link{}, errdefs.New(errdefs.Internal, "guest socket: %w", errors.Join(err, unix.Close(fd)))
	}
	return link{os.NewFile(uintptr(fd), "guest")}, nil
}

// send sends one message with the descriptors of files.
func (l link) send(message []byte, files ...*os.File) error {
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			control(f, func(fd int) { fds[i] = fd })
		}
		rights = unix.UnixRights(fds...)
	}
	raw, err := l.file.SyscallConn()
	if err != nil {
		return err
	}
	l.file.SetWriteDeadline(time.Now().Add(sendTimeout))
	var sendErr error
	err = raw.Write(func(fd uintptr) bool {
		_, sendErr = unix.SendmsgN(int(fd), message, rights, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		return !errors.Is(sendErr, unix.EAGAIN) && !errors.Is(sendErr, unix.EINTR)
	})
	return errors.Join(err, sendErr)
}

// received is a message from inside, with the host ids of the sender as reported by the
// kernel. pid is 0 if the kernel did not report them.
type received struct {
	message  []byte
	pid      int
	uid, gid int
}

// receive returns the next message. Errors: io.EOF if the peer has closed its end;
// errProtocol for a message that is too long or has descriptors, which receive closes.
func (l link) receive() (received, error) {
	raw, err := l.file.SyscallConn()
	if err != nil {
		return received{}, err
	}
	var (
		message    = make([]byte, maxIncoming)
		oob        = make([]byte, 256)
		n, oobn    int
		flags      int
		receiveErr error
	)
	err = raw.Read(func(fd uintptr) bool {
		n, oobn, flags, _, receiveErr = unix.Recvmsg(int(fd), message, oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
		return !errors.Is(receiveErr, unix.EAGAIN) && !errors.Is(receiveErr, unix.EINTR)
	})
	if err != nil {
		return received{}, err
	}
	if receiveErr != nil {
		return received{}, receiveErr
	}
	if n == 0 && flags&unix.MSG_TRUNC == 0 {
		return received{}, io.EOF
	}
	r := received{message: message[:n]}
	if !r.readControl(oob[:oobn]) || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		return received{}, errProtocol
	}
	return r, nil
}

// readControl reads the sender's credentials from control messages. It returns false if
// there is any other control message.
func (r *received) readControl(oob []byte) bool {
	controls, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return false
	}
	ok := true
	for i := range controls {
		if fds, err := unix.ParseUnixRights(&controls[i]); err == nil {
			for _, fd := range fds {
				unix.Close(fd)
			}
			ok = false
			continue
		}
		credentials, err := unix.ParseUnixCredentials(&controls[i])
		if err != nil {
			ok = false
			continue
		}
		r.pid, r.uid, r.gid = int(credentials.Pid), int(credentials.Uid), int(credentials.Gid)
	}
	return ok
}

// hungUp reports whether the peer has closed its end.
func (l link) hungUp() bool {
	var has int16
	err := error(unix.EBADF)
	control(l.file, func(fd int) { has, err = pollfd.Wait(fd, unix.POLLRDHUP, 0) })
	return err != nil || has != 0
}

// control calls do with the descriptor, without the side effect of Fd, which
// makes a file blocking. It does not call do if the file is closed.
func control(f *os.File, do func(fd int)) {
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { do(int(fd)) })
	}
}

// pipefsMagic is PIPEFS_MAGIC of linux/magic.h.
const pipefsMagic = 0x50495045

// CheckPipe refuses every descriptor that is not an anonymous pipe. A program inside could
// reopen a file or a directory through /proc/self/fd, with other rights.
func CheckPipe(f *os.File) error {
	var st unix.Statfs_t
	err := error(unix.EBADF)
	control(f, func(fd int) { err = unix.Fstatfs(fd, &st) })
	if err != nil {
		return errdefs.New(errdefs.Invalid, "exec: stream: %w", err)
	}
	if st.Type != pipefsMagic {
		return errdefs.New(errdefs.Invalid, "exec: a stream is not a pipe: only pipes enter a sandbox")
	}
	return nil
}
