package guest

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// maxDescriptors is the maximum number of descriptors of a message to PID 1: a leader's
// socket and three streams.
const maxDescriptors = 4

// sendRaw sends a message from inside, on a blocking socket.
func sendRaw(fd int, message []byte) error { return sendWith(0, fd, message) }

// sendWith is sendRaw with flags of send(2).
func sendWith(flags, fd int, message []byte) error {
	for {
		_, err := unix.SendmsgN(fd, message, nil, nil, unix.MSG_NOSIGNAL|flags)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// receiveRaw receives a message inside, with its descriptors. It returns io.EOF if the
// supervisor has ended.
func receiveRaw(fd int, buffer []byte) ([]byte, []int, error) {
	oob := make([]byte, unix.CmsgSpace(4*maxDescriptors))
	for {
		n, oobn, flags, _, err := unix.Recvmsg(fd, buffer, oob, unix.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECONNRESET):
			return nil, nil, io.EOF
		case err != nil:
			return nil, nil, err
		case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
			return nil, nil, errProtocol
		case n == 0:
			return nil, nil, io.EOF
		}
		fds, err := rightsOf(oob[:oobn])
		return buffer[:n], fds, err
	}
}

func rightsOf(oob []byte) ([]int, error) {
	controls, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var fds []int
	for i := range controls {
		rights, err := unix.ParseUnixRights(&controls[i])
		if err != nil {
			return nil, err
		}
		fds = append(fds, rights...)
	}
	return fds, nil
}
